package headrace.serve;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.sparkproject.connect.protobuf.Descriptors.FieldDescriptor;
import org.sparkproject.connect.protobuf.Message;

/**
 * Which requests of Spark Connect's protocol are taken: all fields of a message are walked, and each kind of relation, expression,
 * command and look that is not listed here is refused. So no client brings code, names a file or writes.
 */
final class ConnectRequests {
    static final Set<String> METHODS = Set.of(
        "ExecutePlan", "AnalyzePlan", "Config", "Interrupt", "ReattachExecute", "ReleaseExecute", "ReleaseSession",
        "FetchErrorDetails");
    /** Of messages that are one of many kinds, the kinds that are taken. */
    private static final Map<String, Set<String>> TAKEN = Map.ofEntries(
        Map.entry("spark.connect.Plan", Set.of("root", "command")),
        Map.entry("spark.connect.Command", Set.of("sql_command", "create_dataframe_view")),
        Map.entry("spark.connect.SqlCommand", Set.of("sql", "input", "args", "pos_args", "named_arguments", "pos_arguments")),
        Map.entry("spark.connect.Read", Set.of("named_table")),
        Map.entry("spark.connect.Read.NamedTable", Set.of("unparsed_identifier")),
        Map.entry("spark.connect.Relation", Set.of(
            "common", "aggregate", "approx_quantile", "as_of_join", "catalog", "corr", "cov", "crosstab", "deduplicate", "describe",
            "drop", "drop_na", "fill_na", "filter", "freq_items", "hint", "html_string", "join", "lateral_join", "limit",
            "local_relation", "offset", "project", "range", "read", "repartition", "repartition_by_expression", "replace", "sample",
            "sample_by", "set_op", "show_string", "sort", "sql", "subquery_alias", "summary", "tail", "to_df", "to_schema",
            "transpose", "unpivot", "with_columns", "with_columns_renamed", "with_relations")),
        Map.entry("spark.connect.Expression", Set.of(
            "common", "literal", "unresolved_attribute", "unresolved_function", "expression_string", "unresolved_star", "alias",
            "cast", "unresolved_regex", "sort_order", "lambda_function", "window", "unresolved_extract_value", "update_fields",
            "unresolved_named_lambda_variable", "call_function", "named_argument_expression", "subquery_expression")),
        // A `udt` names a class, and so can the text of an `unparsed` type.
        Map.entry("spark.connect.DataType", Set.of(
            "null", "binary", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string", "char", "var_char",
            "date", "timestamp", "timestamp_ntz", "calendar_interval", "year_month_interval", "day_time_interval", "array", "struct",
            "map", "variant", "geometry", "geography", "unparsed", "time")),
        Map.entry("spark.connect.Catalog", Set.of(
            "current_database", "set_current_database", "list_databases", "list_tables", "list_functions", "list_columns",
            "get_database", "get_table", "get_function", "database_exists", "table_exists", "function_exists", "drop_temp_view",
            "is_cached", "current_catalog", "list_catalogs", "list_views")),
        Map.entry("spark.connect.AnalyzePlanRequest", Set.of(
            "session_id", "client_observed_server_side_session_id", "user_context", "client_type", "schema", "explain",
            "tree_string", "is_local", "is_streaming", "spark_version", "ddl_parse", "same_semantics", "semantic_hash",
            "get_storage_level", "json_to_ddl")),
        Map.entry("spark.connect.ConfigRequest.Operation", Set.of(
            "set", "get", "get_with_default", "get_option", "unset", "is_modifiable")));
    private static final int LONGEST_SUMMARY = 2_000;
    private static final String READABLE = "spark\\.(sql|connect|python)\\.[A-Za-z0-9_.]+|headrace\\.as_of";
    private static final String SECRET = "(?i).*(secret|password|token|key|credential|url).*";

    private ConnectRequests() {}

    /** Throw Refusal for a request that is not taken. */
    static void check(Message message) {
        String kind = message.getDescriptorForType().getFullName();
        Set<String> taken = TAKEN.get(kind);
        if (kind.equals("google.protobuf.Any")) {
            throw refused("an extension");
        }
        for (Map.Entry<FieldDescriptor, Object> each : message.getAllFields().entrySet()) {
            String field = each.getKey().getName();
            if (taken != null && !taken.contains(field)) {
                throw refused(field);
            }
            if (kind.equals("spark.connect.CreateDataFrameViewCommand") && field.equals("is_global")) {
                throw refused("a global view");
            }
            if (field.equals("function_name") && each.getValue() instanceof String function) {
                checkFunction(function);
            }
            if (field.equals("is_metadata_column") && Boolean.TRUE.equals(each.getValue())) {
                throw refused("a column of files");
            }
            if (field.equals("is_internal")) {
                throw refused("a function of Spark's own");
            }
            if (kind.equals("spark.connect.Read") && field.equals("is_streaming")) {
                throw refused("a stream");
            }
            if (kind.startsWith("spark.connect.ConfigRequest.") && !kind.endsWith(".Operation")) {
                checkSetting(kind, each.getValue());
            } else if (each.getKey().getJavaType() == FieldDescriptor.JavaType.MESSAGE) {
                if (each.getValue() instanceof List<?> several) {
                    several.forEach(one -> check((Message) one));
                } else {
                    check((Message) each.getValue());
                }
            }
        }
    }

    private static void checkFunction(String text) {
        // An operator is one part, and so is a name; a client may write backticks around one.
        String name = text.matches("`[^`.]+`") ? text.substring(1, text.length() - 1) : text;
        Functions.check(name.matches("[A-Za-z_0-9.]+") ? List.of(name.split("\\.")) : List.of(name));
    }

    /** Return what a plan that is no SQL does: its kinds of relations, the tables and the SQL in it, and no other values. */
    static String summary(Message plan) {
        StringBuilder text = new StringBuilder();
        summarize(plan, text);
        return text.toString().trim();
    }

    private static void summarize(Message message, StringBuilder text) {
        String kind = message.getDescriptorForType().getFullName();
        for (Map.Entry<FieldDescriptor, Object> each : message.getAllFields().entrySet()) {
            String field = each.getKey().getName();
            if (text.length() > LONGEST_SUMMARY) {
                return;
            }
            if (field.equals("unparsed_identifier") || field.equals("query")) {
                text.append(each.getValue()).append(' ');
            } else if (each.getKey().getJavaType() == FieldDescriptor.JavaType.MESSAGE) {
                if (kind.equals("spark.connect.Relation") && !field.equals("common")) {
                    text.append(field).append(' ');
                }
                List<?> values = each.getValue() instanceof List<?> several ? several : List.of(each.getValue());
                values.forEach(one -> summarize((Message) one, text));
            }
        }
    }

    private static void checkSetting(String kind, Object value) {
        boolean writes = kind.endsWith(".Set") || kind.endsWith(".Unset");
        if (value instanceof List<?> several) {
            several.forEach(one -> checkSetting(kind, one));
        } else if (value instanceof Message pair) {
            checkSetting(kind, pair.getField(pair.getDescriptorForType().findFieldByName("key")));
        } else if (value instanceof String key) {
            if (writes && !Guard.SETTINGS.contains(key) || !key.matches(READABLE) || key.matches(SECRET)) {
                throw new Refusal("this setting is refused: a session may set " + String.join(", ", new java.util.TreeSet<>(Guard.SETTINGS)));
            }
        }
    }

    private static Refusal refused(String what) {
        return new Refusal("this is refused since it is no query of published tables (" + what + ")");
    }
}
