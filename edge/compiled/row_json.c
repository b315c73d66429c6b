/* The module in C. Limited API: one build serves Python 3.11 and newer. */

#include "json_text.h"

unsigned char grows_by[256];
signed char digit_of[256];
const char HEXADECIMAL[] = "0123456789abcdef";
const char BASE64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void fill_tables(void)
{
    memset(digit_of, -1, sizeof digit_of);
    for (int value = 0; value < 16; value++) {
        digit_of[(unsigned char)HEXADECIMAL[value]] = (signed char)value;
        if (value >= 10)
            digit_of['A' + value - 10] = (signed char)value;
    }
    for (int byte = 0; byte < 256; byte++)
        grows_by[byte] = byte < 0x20 ? 5 : byte < 0x80 ? 0 : 255;
    for (const char *byte = "\"\\\b\t\n\f\r"; *byte; byte++)
        grows_by[(unsigned char)*byte] = 1;
}

static int add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int added = type ? PyModule_AddObjectRef(module, name, type) : -1;
    Py_XDECREF(type);
    return added;
}

static int add_types(PyObject *module)
{
    fill_tables();
    return add_type(module, "Plan", &plan_spec) < 0 ? -1 : add_type(module, "Images", &images_spec);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, add_types}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "row_json",
    .m_doc = "Rows of the log as JSON.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit_row_json(void)
{
    return PyModuleDef_Init(&module_def);
}
