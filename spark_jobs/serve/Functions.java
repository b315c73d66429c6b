package headrace.serve;

import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase;
import org.apache.spark.sql.catalyst.analysis.TableFunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.CreateMap;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.CalendarInterval;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Option;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Which of Spark's functions a query may call: those of a written list, which compute from their arguments alone.
 *
 * All others are refused, so that what a later Spark brings is refused until somebody has read it. They are refused twice: by name
 * in statements and requests, and in the registry of each session, which no way of calling a function passes by.
 */
public final class Functions {
    private static final Set<String> ALLOWED = Set.of("""
        ! != % & * + - / < << <= <=> <> = == > >= >> >>> ^ | || ~
        abs acos acosh add_months aes_decrypt aes_encrypt aggregate and any any_value approx_count_distinct
        approx_percentile approx_top_k array array_agg array_append array_compact array_contains array_distinct
        array_except array_insert array_intersect array_join array_max array_min array_position array_prepend
        array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip ascii asin asinh
        assert_true atan atan2 atanh avg base64 between bigint bin binary bit_and bit_count bit_get bit_length bit_or
        bit_xor bitmap_and_agg bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count
        bitmap_or_agg bool_and bool_or boolean bround btrim cardinality case cast cbrt ceil ceiling char char_length
        character_length chr coalesce collate collation collations collect_list collect_set concat concat_ws contains
        conv convert_timezone corr cos cosh cot count count_if covar_pop covar_samp crc32 csc
        cume_dist curdate current_catalog current_database current_date current_path current_schema current_time
        current_timestamp current_timezone date date_add date_diff date_format date_from_unix_date
        date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear decimal
        decode degrees dense_rank div double e element_at elt encode endswith equal_null every exists exp explode
        explode_outer expm1 extract factorial filter find_in_set first first_value flatten float floor forall
        format_number format_string from_csv from_json from_unixtime from_utc_timestamp get get_json_object getbit
        greatest grouping grouping_id hash hex histogram_numeric hour hypot if ifnull ilike in initcap inline
        inline_outer instr int is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull json_array_length
        json_object_keys json_tuple kurtosis lag last last_day last_value lcase lead least left len length levenshtein
        like listagg ln localtimestamp locate log log10 log1p log2 lower lpad ltrim luhn_check make_date
        make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8
        make_ym_interval map map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries
        map_keys map_values map_zip_with mask max max_by md5 mean measure median min min_by minute mod mode
        monotonically_increasing_id month monthname months_between named_struct nanvl negative next_day not now
        nth_value ntile nullif nullifzero nvl nvl2 octet_length or overlay parse_json parse_url percent_rank
        percentile percentile_approx percentile_cont percentile_disc pi pmod posexplode posexplode_outer position
        positive pow power printf quarter quote radians raise_error rand randn random randstr range rank reduce regexp
        regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx
        regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right
        rint rlike round row_number rpad rtrim schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg
        sec second sentences sequence session_window sha sha1 sha2 shiftleft shiftright
        shiftrightunsigned shuffle sign signum sin sinh size skewness slice smallint some sort_array soundex space
        spark_partition_id split split_part sql_keywords sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid
        st_srid stack startswith std stddev stddev_pop stddev_samp str_to_map string string_agg struct substr
        substring substring_index sum tan tanh time time_bucket time_diff time_from_micros time_from_millis
        time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp timestamp_micros
        timestamp_millis timestamp_seconds tinyint to_binary to_char to_csv to_date to_json to_number to_time
        to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar to_variant_object
        transform transform_keys transform_values translate trim trunc try_add try_aes_decrypt try_avg try_divide
        try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod
        try_multiply try_parse_json try_parse_url try_subtract try_sum try_to_binary try_to_date try_to_number
        try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_get typeof ucase unbase64 unhex
        uniform unix_date unix_micros unix_millis unix_seconds unix_timestamp upper url_decode url_encode uuid
        validate_utf8 var_pop var_samp variance variant_explode variant_explode_outer variant_get vector_avg
        vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum
        version weekday weekofyear when width_bucket window window_time xxhash64 year zeroifnull zip_with
        """.strip().split("\\s+"));
    /** Where a name may say that a built-in function is. */
    private static final Set<String> FOLDERS = Set.of("", "builtin", "system.builtin");
    /** Names that Spark Connect's clients send for functions that are in no registry. */
    private static final Set<String> UNREGISTERED = Set.of("product", "timestampadd", "timestampdiff");
    /** Functions that were read and are refused, with the reason. */
    private static final Map<String, String> REFUSED = new TreeMap<>();
    /** Functions with options of readers, and those of their options that name a class. */
    private static final Set<String> WITH_OPTIONS =
        Set.of("from_csv", "from_json", "schema_of_csv", "schema_of_json", "to_csv", "to_json");
    private static final Set<String> CLASS_OPTIONS = Set.of("codec", "compression");
    /** Bytes of a text, or elements of an array, that one call may make by its constants. */
    private static final double MOST = 16 * 1024 * 1024;
    private static final double MICROS_OF_DAY = 86_400e6;
    /** A width, a precision or the number of an argument, in a format. */
    private static final Pattern WIDE = Pattern.compile("%[-#+ 0,(<$.0-9]*[0-9]{6}");
    /** Functions that make as much as an argument says, and its place. */
    private static final Map<String, Integer> SIZED = Map.ofEntries(
        Map.entry("array_insert", 1), Map.entry("array_repeat", 1), Map.entry("format_number", 1), Map.entry("format_string", 0),
        Map.entry("lpad", 1), Map.entry("printf", 0), Map.entry("randstr", 0), Map.entry("repeat", 1), Map.entry("rpad", 1),
        Map.entry("sequence", 1), Map.entry("space", 0), Map.entry("stack", 0));

    static {
        refuse("it names the user of the server's process", "current_user session_user user");
        refuse("a query chooses how much memory it takes", "count_min_sketch");
        refuse("it runs methods of the server", "java_method reflect try_reflect");
        refuse("it shows the server's files", "input_file_block_length input_file_block_start input_file_name");
        refuse("it shows the server's logs", "python_worker_logs");
        refuse("it reads the file or address of a schema", "from_avro from_protobuf schema_of_avro to_avro to_protobuf");
        refuse("its parser reads files that a document names", """
            from_xml schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long
            xpath_number xpath_short xpath_string
            """);
        refuse("its library reads a sketch's bytes without checking them", """
            approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate hll_sketch_agg hll_sketch_estimate
            hll_union hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
            kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint
            kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint
            kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint
            kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double
            kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double
            kll_sketch_to_string_float theta_difference theta_intersection theta_intersection_agg theta_sketch_agg
            theta_sketch_estimate theta_union theta_union_agg tuple_difference_double tuple_difference_integer
            tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_agg_double
            tuple_intersection_agg_integer tuple_intersection_double tuple_intersection_integer
            tuple_intersection_theta_double tuple_intersection_theta_integer tuple_sketch_agg_double
            tuple_sketch_agg_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
            tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double
            tuple_sketch_theta_integer tuple_union_agg_double tuple_union_agg_integer tuple_union_double
            tuple_union_integer tuple_union_theta_double tuple_union_theta_integer
            """);
    }

    private Functions() {}

    /** Whether somebody has decided on a function: true for allowed, false for refused, null for neither, which is refused too. */
    public static Boolean decision(String name) {
        return ALLOWED.contains(name) ? Boolean.TRUE : REFUSED.containsKey(name) ? Boolean.FALSE : null;
    }

    /** Throw Refusal unless these are the parts of an allowed function's name. */
    static void check(List<String> parts) {
        String name = parts.get(parts.size() - 1).toLowerCase(Locale.ROOT);
        String folder = String.join(".", parts.subList(0, parts.size() - 1)).toLowerCase(Locale.ROOT);
        if (!FOLDERS.contains(folder) || !ALLOWED.contains(name) && !UNREGISTERED.contains(name)) {
            throw refusal(name);
        }
    }

    /** Let the registries of sessions build allowed functions alone. */
    static void register(SparkSessionExtensions extensions) {
        each(FunctionRegistry.builtin(), name -> {
            if (!ALLOWED.contains(name.funcName())) {
                extensions.injectFunction(replacing(FunctionRegistry.builtin(), name, arguments -> {
                    throw refusal(name.funcName());
                }));
            } else if (SIZED.containsKey(name.funcName())) {
                Function1<Seq<Expression>, Expression> builder = FunctionRegistry.builtin().lookupFunctionBuilder(name).get();
                extensions.injectFunction(replacing(FunctionRegistry.builtin(), name, arguments -> {
                    checkSize(name.funcName(), arguments);
                    return builder.apply(arguments);
                }));
            } else if (WITH_OPTIONS.contains(name.funcName())) {
                Function1<Seq<Expression>, Expression> builder = FunctionRegistry.builtin().lookupFunctionBuilder(name).get();
                extensions.injectFunction(replacing(FunctionRegistry.builtin(), name, arguments -> {
                    checkOptions(name.funcName(), arguments);
                    return builder.apply(arguments);
                }));
            }
        });
        each(TableFunctionRegistry.builtin(), name -> {
            if (!ALLOWED.contains(name.funcName())) {
                extensions.injectTableFunction(replacing(TableFunctionRegistry.builtin(), name, arguments -> {
                    throw refusal(name.funcName());
                }));
            } else if (SIZED.containsKey(name.funcName())) {
                Function1<Seq<Expression>, LogicalPlan> builder = TableFunctionRegistry.builtin().lookupFunctionBuilder(name).get();
                extensions.injectTableFunction(replacing(TableFunctionRegistry.builtin(), name, arguments -> {
                    checkSize(name.funcName(), arguments);
                    return builder.apply(arguments);
                }));
            }
        });
    }

    private static void each(FunctionRegistryBase<?> registry, Consumer<FunctionIdentifier> use) {
        for (Iterator<FunctionIdentifier> names = registry.listFunction().iterator(); names.hasNext();) {
            use.accept(names.next());
        }
    }

    private static <T> Tuple3<FunctionIdentifier, ExpressionInfo, Function1<Seq<Expression>, T>> replacing(
            FunctionRegistryBase<T> registry, FunctionIdentifier name, Function1<Seq<Expression>, T> builder) {
        // Spark takes a name without a folder as a built-in one's, and passes over all others.
        return new Tuple3<>(new FunctionIdentifier(name.funcName()), registry.lookupFunction(name).get(), builder);
    }

    private static void checkOptions(String function, Seq<Expression> arguments) {
        for (Iterator<Expression> each = arguments.iterator(); each.hasNext();) {
            if (each.next() instanceof CreateMap options) {
                for (Iterator<Expression> keys = ((scala.collection.Iterable<Expression>) options.keys()).iterator(); keys.hasNext();) {
                    Expression key = keys.next();
                    if (!key.foldable() || CLASS_OPTIONS.contains(String.valueOf(key.eval(null)).toLowerCase(Locale.ROOT))) {
                        throw new Refusal("these options of " + function + " are refused: they can name a class of the server");
                    }
                }
            }
        }
    }

    /** Throw Refusal for a call whose constants show that it makes too much; what Spark refuses itself is left to it. */
    private static void checkSize(String function, Seq<Expression> arguments) {
        List<Expression> given = CollectionConverters.asJava(arguments);
        if (given.stream().anyMatch(each -> each instanceof NamedArgumentExpression)) {
            throw new Refusal("the function " + function + " is refused with named arguments");
        }
        double size;
        try {
            size = given.size() > SIZED.get(function) ? size(function, given, given.get(SIZED.get(function))) : 0;
        } catch (Exception notConstant) {
            return;
        }
        if (size > MOST) {
            throw new Refusal(
                "this call of " + function + " is refused: it makes too much, the limit is 16 MB or as many elements");
        }
    }

    /** Return how many bytes or elements a call makes; throw an exception where its constants do not show it. */
    private static double size(String function, List<Expression> given, Expression argument) {
        switch (function) {
            case "format_string", "printf":
                return WIDE.matcher(constant(argument, DataTypes.StringType).toString()).find() ? Double.POSITIVE_INFINITY : 0;
            case "format_number":
                return argument.dataType() instanceof StringType ? 0 : number(argument);
            case "repeat":
                Expression text = given.get(0);
                return number(argument) * (text.foldable() ? ((UTF8String) constant(text, DataTypes.StringType)).numBytes() : 1);
            case "sequence":
                boolean numbers = argument.dataType() instanceof IntegralType;
                DataType type = numbers ? DataTypes.LongType : DataTypes.TimestampType;
                double length = (double) (Long) constant(argument, type) - (Long) constant(given.get(0), type);
                if (given.size() < 3) {
                    return Math.abs(numbers ? length : length / MICROS_OF_DAY);
                }
                double step = numbers ? number(given.get(2)) : micros(given.get(2));
                // No step, or one in the other direction, is an error of Spark's.
                return step == 0 ? 0 : length / step;
            case "array_insert":
                return Math.abs(number(argument));
            default:
                return number(argument);
        }
    }

    /** Return how long the step of a sequence of times is at least. */
    private static double micros(Expression step) {
        Object value = constant(step, step.dataType());
        if (value instanceof CalendarInterval interval) {
            return (28.0 * interval.months + interval.days) * MICROS_OF_DAY + interval.microseconds;
        }
        return value instanceof Integer months ? 28.0 * months * MICROS_OF_DAY : (Long) value;
    }

    private static double number(Expression argument) {
        return (Double) constant(argument, DataTypes.DoubleType);
    }

    private static Object constant(Expression argument, DataType type) {
        Option<String> zone = Option.apply(SQLConf.get().sessionLocalTimeZone());
        Expression typed = Cast$.MODULE$.apply(argument, type, zone, SQLConf.get().ansiEnabled());
        if (!typed.foldable()) {
            throw new IllegalArgumentException("not a constant");
        }
        return typed.eval(null);
    }

    private static Refusal refusal(String name) {
        String reason = REFUSED.get(name);
        return new Refusal("the function " + name + " is refused: " + (reason == null ? "it is not among those that are known to be safe" : reason));
    }

    private static void refuse(String reason, String names) {
        for (String name : names.strip().split("\\s+")) {
            REFUSED.put(name, reason);
        }
    }
}
