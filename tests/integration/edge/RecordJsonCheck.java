package headrace.debezium;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Modifier;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * `RecordJsonCheck SEED COUNT FIELDS`: fails unless random values are the bytes of Connect's converter, and random changes what that
 * has of them, reduced to what the edge reads; then prints each line of standard input, TYPE TEXT, as a time of that type.
 */
public final class RecordJsonCheck {
    private static final String[] NAMES = {null, null, null, "io.debezium.data.Json", "io.debezium.data.Enum"};
    private static final int[] ODD = "aé€😀\u0000\u001f\n\"\\/\u007f\u2028 ".codePoints().toArray();

    private final Random chance;
    private final JsonConverter converter = new JsonConverter();
    private RecordJson json;
    private int refused;

    private RecordJsonCheck(long seed) throws Exception {
        chance = new Random(seed);
        converter.configure(Map.of("schemas.enable", "false", "replace.null.with.default", "false"), false);
        json = new RecordJson(converter);
    }

    public static void main(String[] arguments) throws Exception {
        RecordJsonCheck check = new RecordJsonCheck(Long.parseLong(arguments[0]));
        int count = Integer.parseInt(arguments[1]);
        for (int number = 0; number < count; number++) {
            Schema schema = check.schema(3);
            boolean isStruct = schema.type() == Schema.Type.STRUCT;
            Object value = isStruct ? check.struct(schema, 20) : check.value(schema);
            check.compare(schema, check.chance.nextInt(50) == 0 ? List.of(5L, "x") : value);
            check.compareChange(List.of(arguments[2].split(",")));
        }
        // A key of columns that are called as parts of a change, and a change of another schema than its record's.
        Schema key = SchemaBuilder.struct().field("source", Schema.STRING_SCHEMA).field("op", Schema.INT32_SCHEMA)
                .field("before", Schema.INT32_SCHEMA).build();
        check.compare(key, new Struct(key).put("source", "a").put("op", 1).put("before", 2));
        Schema source = SchemaBuilder.struct().field("db", Schema.STRING_SCHEMA).build();
        SchemaBuilder change = SchemaBuilder.struct().field("op", Schema.STRING_SCHEMA).field("source", source);
        Struct other = new Struct(change.build()).put("op", "c").put("source", new Struct(source).put("db", "b"));
        check.compare(change.field("after", Schema.OPTIONAL_STRING_SCHEMA).build(), other);
        if (check.refused == 0 || check.refused > count / 2) {
            throw new AssertionError("values that are none were " + check.refused + " of " + count);
        }
        checkFormatter();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int space = line.indexOf(' ');
            System.out.println(RecordJson.time(line.substring(0, space), line.substring(space + 1)));
        }
    }

    /** Fail unless our class in the place of one of Debezium's has whatever of that other classes can call. */
    private static void checkFormatter() throws Exception {
        String name = "io.debezium.pipeline.source.spi.EventFormatter";
        Set<String> ours = declared(Class.forName(name));
        List<URL> jars = new ArrayList<>();
        for (String jar : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!jar.endsWith("headrace-debezium.jar")) {
                jars.add(new File(jar).toURI().toURL());
            }
        }
        try (URLClassLoader debezium = new URLClassLoader(jars.toArray(URL[]::new), null)) {
            Set<String> missing = declared(debezium.loadClass(name));
            missing.removeAll(ours);
            if (ours.isEmpty() || !missing.isEmpty()) {
                throw new AssertionError("EventFormatter lacks " + missing);
            }
        }
    }

    private static Set<String> declared(Class<?> type) {
        return Stream.of(type.getDeclaredMethods())
                .filter(each -> !Modifier.isPrivate(each.getModifiers()) && !each.isSynthetic())
                .map(each -> each.getReturnType().getName() + " " + each.getName() + Arrays.toString(each.getParameterTypes()))
                .collect(Collectors.toCollection(TreeSet::new));
    }

    private void compare(Schema schema, Object value) throws Exception {
        byte[] wanted = null;
        try {
            wanted = converter.fromConnectData("topic", schema, value);
        } catch (DataException refusal) {
            refused++;
        }
        try {
            // A record has a key and a value, or one of them.
            json.reset();
            int first = json.add(schema, value);
            int second = json.add(schema, value);
            byte[] written = written();
            boolean isNone = value == null;
            if (first != second || (isNone ? first != -1 : written.length != 2 * first)) {
                throw new AssertionError("a length is wrong");
            }
            if (!isNone && !(Arrays.equals(wanted, Arrays.copyOf(written, first))
                    && Arrays.equals(wanted, Arrays.copyOfRange(written, first, 2 * first)))) {
                throw new AssertionError(new String(wanted == null ? new byte[0] : wanted, StandardCharsets.UTF_8) + "\n"
                        + new String(written, StandardCharsets.UTF_8));
            }
        } catch (DataException refusal) {
            if (wanted != null) {
                throw new AssertionError(new String(wanted, StandardCharsets.UTF_8), refusal);
            }
            // The engine ends then, and its JSON with it.
            json = new RecordJson(converter);
        }
    }

    private byte[] written() throws Exception {
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        json.writeTo(written);
        return written.toByteArray();
    }

    private void compareChange(List<String> ofSource) throws Exception {
        SchemaBuilder columns = SchemaBuilder.struct().optional();
        for (int number = chance.nextInt(6); number >= 0; number--) {
            columns.field("c" + number, schema(1));
        }
        Schema row = columns.build();
        SchemaBuilder source = SchemaBuilder.struct();
        for (String each : ofSource) {
            if (chance.nextBoolean()) {
                source.field(each, chance.nextBoolean() ? Schema.OPTIONAL_STRING_SCHEMA : Schema.OPTIONAL_INT64_SCHEMA);
            }
        }
        source.field("version", Schema.STRING_SCHEMA).field("sequence", Schema.OPTIONAL_STRING_SCHEMA);
        Schema transaction = SchemaBuilder.struct().field("id", Schema.STRING_SCHEMA).optional().build();
        Schema schema = SchemaBuilder.struct().field("before", row).field("after", row).field("source", source.build())
                .field("transaction", transaction).field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.INT64_SCHEMA).build();
        Struct change = (Struct) value(schema);
        try {
            ObjectMapper mapper = new ObjectMapper();
            ObjectNode wanted = (ObjectNode) mapper.readTree(converter.fromConnectData("topic", schema, change));
            wanted.retain("before", "after", "source", "op");
            ((ObjectNode) wanted.get("source")).retain(ofSource);
            json.reset();
            json.add(schema, change);
            if (!mapper.readTree(written()).equals(wanted)) {
                throw new AssertionError(wanted + "\n" + new String(written(), StandardCharsets.UTF_8));
            }
        } catch (DataException | JsonProcessingException refusal) {
            // As of a name with half a character.
            json = new RecordJson(converter);
        }
    }

    private Schema schema(int depth) {
        SchemaBuilder builder = switch (chance.nextInt(depth == 0 ? 13 : 17)) {
            case 0 -> SchemaBuilder.int8();
            case 1 -> SchemaBuilder.int16();
            case 2 -> SchemaBuilder.int32();
            case 3 -> SchemaBuilder.int64();
            case 4 -> SchemaBuilder.float32();
            case 5 -> SchemaBuilder.float64();
            case 6 -> SchemaBuilder.bool();
            case 7 -> SchemaBuilder.string().name(NAMES[chance.nextInt(NAMES.length)]);
            case 8 -> SchemaBuilder.bytes();
            case 9 -> Decimal.builder(chance.nextInt(5));
            case 10 -> Date.builder();
            case 11 -> Time.builder();
            case 12 -> Timestamp.builder();
            case 13 -> SchemaBuilder.array(schema(depth - 1));
            case 14 -> SchemaBuilder.map(Schema.STRING_SCHEMA, schema(depth - 1));
            case 15 -> SchemaBuilder.map(schema(0), schema(depth - 1));
            default -> {
                SchemaBuilder struct = SchemaBuilder.struct();
                for (int number = chance.nextInt(5); number > 0; number--) {
                    struct.field(text(3) + number, schema(depth - 1));
                }
                yield struct;
            }
        };
        if (chance.nextInt(3) > 0) {
            builder.optional();
        }
        Object byDefault = builder.type() != Schema.Type.STRUCT && chance.nextInt(4) == 0 ? value(builder) : null;
        return (byDefault == null ? builder : builder.defaultValue(byDefault)).build();
    }

    private Object value(Schema schema) {
        if (schema.isOptional() && chance.nextInt(4) == 0) {
            return null;
        }
        if (schema.name() != null && schema.name().startsWith("org.apache")) {
            long day = 86_400_000L;
            long moment = chance.nextInt(100_000) * day;
            return switch (schema.name()) {
                case Decimal.LOGICAL_NAME -> new BigDecimal(
                        new BigInteger(200, chance), Integer.parseInt(schema.parameters().get(Decimal.SCALE_FIELD)));
                case Date.LOGICAL_NAME -> new java.util.Date(moment);
                case Time.LOGICAL_NAME -> new java.util.Date(chance.nextInt((int) day));
                default -> new java.util.Date(moment + chance.nextInt((int) day));
            };
        }
        return switch (schema.type()) {
            case INT8 -> (byte) chance.nextInt();
            case INT16 -> (short) chance.nextInt();
            case INT32 -> List.of(0, -1, Integer.MIN_VALUE, Integer.MAX_VALUE, chance.nextInt()).get(chance.nextInt(5));
            case INT64 -> List.of(0L, -1L, Long.MIN_VALUE, Long.MAX_VALUE, chance.nextLong()).get(chance.nextInt(5));
            case FLOAT32 -> List.of(0f, -0f, Float.NaN, Float.POSITIVE_INFINITY, Float.MIN_VALUE, Float.MAX_VALUE, 0.1f, 1e10f,
                    chance.nextFloat()).get(chance.nextInt(9));
            case FLOAT64 -> List.of(0d, -0d, Double.NaN, Double.NEGATIVE_INFINITY, Double.MIN_VALUE, Double.MAX_VALUE, 0.1, 1e21,
                    chance.nextDouble()).get(chance.nextInt(9));
            case BOOLEAN -> chance.nextBoolean();
            case STRING -> text(chance.nextInt(200) == 0 ? 20_000 : 12);
            case BYTES -> {
                byte[] bytes = new byte[chance.nextInt(9)];
                chance.nextBytes(bytes);
                yield chance.nextBoolean() ? bytes : ByteBuffer.wrap(bytes);
            }
            case ARRAY -> {
                List<Object> elements = new ArrayList<>();
                for (int number = chance.nextInt(4); number > 0; number--) {
                    elements.add(value(schema.valueSchema()));
                }
                yield elements;
            }
            case MAP -> {
                Map<Object, Object> entries = new LinkedHashMap<>();
                for (int number = chance.nextInt(4); number > 0; number--) {
                    entries.put(value(schema.keySchema()), value(schema.valueSchema()));
                }
                yield entries;
            }
            case STRUCT -> struct(schema, 0);
        };
    }

    /** Return a struct, of whose fields one in so many is left out, also where it has to be there; 0 for none. */
    private Struct struct(Schema schema, int lacking) {
        Struct struct = new Struct(schema);
        for (Field field : schema.fields()) {
            if (lacking == 0 || chance.nextInt(lacking) > 0) {
                struct.put(field, value(field.schema()));
            }
        }
        return struct;
    }

    private String text(int length) {
        StringBuilder text = new StringBuilder();
        for (int number = chance.nextInt(length + 1); number > 0; number--) {
            // Half a character is no text.
            text.appendCodePoint(chance.nextInt(400) == 0 ? 0xd800 : ODD[chance.nextInt(ODD.length)]);
        }
        return text.toString();
    }
}
