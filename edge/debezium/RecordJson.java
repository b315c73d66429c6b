package headrace.debezium;

import com.fasterxml.jackson.core.JsonFactoryBuilder;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonProcessingException;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Keys and values of records as JSON: the bytes of Connect's own converter, which makes a tree of each first, but for times, which
 * are as the edge's records have them. Of a change only what the edge reads (edge/debezium/frames.py, Change and Source).
 *
 * What Connect converts by the name of its type, and what is not of its schema, goes through the converter, which refuses it or not.
 */
final class RecordJson {
    private static final Set<String> OF_CHANGE = Set.of("before", "after", "op");
    private static final Set<String> OF_SOURCE = Set.of(
            "ts_ms", "db", "schema", "table", "txId", "server_id", "gtid", "file", "row", "commit_lsn", "change_lsn",
            "event_serial_no", "scn", "commit_scn", "rs_id", "ssn", "redo_thread", "collection", "ord", "lsid", "txnNumber");
    private static final Set<String> CONVERTED =
            Set.of(Decimal.LOGICAL_NAME, Date.LOGICAL_NAME, Time.LOGICAL_NAME, Timestamp.LOGICAL_NAME);

    /** Room that is kept from one record to the next. */
    private static final int ROOM = 1 << 20;

    private final JsonConverter converter;
    private ByteArrayOutputStream content;
    private JsonGenerator json;

    RecordJson(JsonConverter converter) throws IOException {
        this.converter = converter;
        begin();
    }

    private void begin() throws IOException {
        content = new ByteArrayOutputStream(1 << 16);
        json = new JsonFactoryBuilder().rootValueSeparator((String) null).build().createGenerator(content);
    }

    /** Forget what was added. */
    void reset() throws IOException {
        if (content.size() > ROOM) {
            begin();
        } else {
            content.reset();
        }
    }

    /** Write what was added. */
    void writeTo(OutputStream out) throws IOException {
        content.writeTo(out);
    }

    /** Add a value; return its length, -1 for none. */
    int add(Schema schema, Object value) throws IOException {
        int before = content.size();
        if (value == null) {
            return -1;
        }
        try {
            if (value instanceof Struct change && isChange(change) && change.schema().equals(schema)) {
                writeChange(change);
            } else {
                write(schema, value);
            }
            json.flush();
        } catch (JsonProcessingException refused) {
            throw new DataException("a value cannot be JSON", refused);
        }
        return content.size() - before;
    }

    /** Whether a record's value is a change as Debezium's envelope has it, or a logical message. */
    static boolean isChange(Struct value) {
        // A table's key may have columns of these names.
        Field source = value.schema().field("source");
        return source != null && source.schema().type() == Schema.Type.STRUCT && value.schema().field("op") != null;
    }

    private void writeChange(Struct change) throws IOException {
        json.writeStartObject();
        for (Field field : change.schema().fields()) {
            if (OF_CHANGE.contains(field.name())) {
                json.writeFieldName(field.name());
                write(field.schema(), valueOf(change, field));
            } else if (field.name().equals("source")) {
                json.writeObjectFieldStart("source");
                Struct source = change.getStruct("source");
                for (Field each : source.schema().fields()) {
                    if (OF_SOURCE.contains(each.name())) {
                        json.writeFieldName(each.name());
                        write(each.schema(), valueOf(source, each));
                    }
                }
                json.writeEndObject();
            }
        }
        json.writeEndObject();
    }

    /** Return a field's value; a null is no default. */
    private static Object valueOf(Struct struct, Field field) {
        return field.schema().defaultValue() == null ? struct.get(field) : struct.getWithoutDefault(field.name());
    }

    private void write(Schema schema, Object value) throws IOException {
        if (value == null && (schema == null || schema.isOptional())) {
            json.writeNull();
        } else if (!isWritten(schema, value)) {
            json.writeRawValue(new String(converter.fromConnectData("", schema, value), StandardCharsets.UTF_8));
        }
    }

    /** Write a value of its schema; return false where it is none, or is converted by the name of its type. */
    private boolean isWritten(Schema schema, Object value) throws IOException {
        if (schema == null || (schema.name() != null && CONVERTED.contains(schema.name()))) {
            return false;
        }
        Schema.Type type = schema.type();
        if (type == Schema.Type.STRING && value instanceof CharSequence text) {
            json.writeString(schema.name() == null ? text.toString() : time(schema.name(), text.toString()));
        } else if (type == Schema.Type.INT64 && value instanceof Long number) {
            json.writeNumber(number);
        } else if (type == Schema.Type.INT32 && value instanceof Integer number) {
            json.writeNumber(number);
        } else if (type == Schema.Type.STRUCT && value instanceof Struct struct && struct.schema().equals(schema)) {
            json.writeStartObject();
            for (Field field : schema.fields()) {
                json.writeFieldName(field.name());
                write(field.schema(), valueOf(struct, field));
            }
            json.writeEndObject();
        } else if (type == Schema.Type.BOOLEAN && value instanceof Boolean truth) {
            json.writeBoolean(truth);
        } else if (type == Schema.Type.INT16 && value instanceof Short number) {
            json.writeNumber(number);
        } else if (type == Schema.Type.INT8 && value instanceof Byte number) {
            json.writeNumber(number);
        } else if (type == Schema.Type.FLOAT64 && value instanceof Double number) {
            json.writeNumber(number);
        } else if (type == Schema.Type.FLOAT32 && value instanceof Float number) {
            json.writeNumber(number);
        } else if (type == Schema.Type.BYTES && value instanceof byte[] bytes) {
            json.writeBinary(bytes);
        } else if (type == Schema.Type.BYTES && value instanceof ByteBuffer bytes) {
            json.writeBinary(bytes.array());
        } else if (type == Schema.Type.ARRAY && value instanceof Collection<?> elements) {
            json.writeStartArray();
            for (Object element : elements) {
                write(schema.valueSchema(), element);
            }
            json.writeEndArray();
        } else {
            return type == Schema.Type.MAP && value instanceof Map<?, ?> map && isMapWritten(schema, map);
        }
        return true;
    }

    /** Write a map: by its keys where they are text, else as an array of pairs. */
    private boolean isMapWritten(Schema schema, Map<?, ?> map) throws IOException {
        if (schema.keySchema().type() != Schema.Type.STRING) {
            json.writeStartArray();
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                json.writeStartArray();
                write(schema.keySchema(), entry.getKey());
                write(schema.valueSchema(), entry.getValue());
                json.writeEndArray();
            }
            json.writeEndArray();
            return true;
        }
        if (!map.keySet().stream().allMatch(String.class::isInstance)) {
            return false;
        }
        json.writeStartObject();
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            json.writeFieldName((String) entry.getKey());
            write(schema.valueSchema(), entry.getValue());
        }
        json.writeEndObject();
        return true;
    }

    /** Return a time by the name of its type as the edge's records have it; other text, and what has no such form, as it is. */
    static String time(String type, String text) {
        return switch (type) {
            case "io.debezium.time.IsoDate" -> without("Z", text);
            case "io.debezium.time.IsoTimestamp", "io.debezium.time.IsoTime" -> without("Z", shortened(text));
            case "io.debezium.time.ZonedTimestamp" -> inUtc(shortened(text), "Z");
            case "io.debezium.time.ZonedTime" ->
                    inUtc(shortened(text), "+00").replaceFirst("([+-]\\d\\d):00$", "$1");
            default -> text;
        };
    }

    /** Return a time without zeros at its fraction's end. */
    private static String shortened(String text) {
        int point = text.indexOf('.');
        if (point < 0) {
            return text;
        }
        int zone = point + 1;
        while (zone < text.length() && text.charAt(zone) >= '0' && text.charAt(zone) <= '9') {
            zone++;
        }
        int end = zone;
        while (text.charAt(end - 1) == '0') {
            end--;
        }
        return text.substring(0, end == point + 1 ? point : end) + text.substring(zone);
    }

    /** Return a time with another name of UTC where it is in that. */
    private static String inUtc(String text, String name) {
        for (String utc : new String[] {"Z", "+00:00", "+00"}) {
            if (text.endsWith(utc)) {
                return without(utc, text) + name;
            }
        }
        return text;
    }

    private static String without(String end, String text) {
        return text.endsWith(end) ? text.substring(0, text.length() - end.length()) : text;
    }
}
