package headrace.debezium;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;

/**
 * Connect's values as JSON, as its JsonConverter writes them without schemas, in a third of its time: no tree is made of them. What
 * the edge does not read of a change is left out; a null is no default.
 */
final class RowJson {
    /** Of a change's own block of its transaction, and of its times: the source block has the one that is read. */
    private static final Set<String> UNREAD = Set.of("transaction", "ts_ms", "ts_us", "ts_ns");

    private final JsonFactory factory = new JsonFactory();
    private final ByteArrayOutputStream out = new ByteArrayOutputStream(1 << 12);

    /** Return a value as JSON; null for none. */
    byte[] bytes(Object value) throws IOException {
        if (value == null) {
            return null;
        }
        out.reset();
        try (JsonGenerator json = factory.createGenerator(out)) {
            if (value instanceof Struct change && change.schema().field("op") != null) {
                write(json, change, UNREAD);
            } else {
                write(json, value);
            }
        }
        return out.toByteArray();
    }

    private static void write(JsonGenerator json, Object value) throws IOException {
        if (value == null) {
            json.writeNull();
        } else if (value instanceof String text) {
            json.writeString(text);
        } else if (value instanceof Double number) {
            json.writeNumber(number);
        } else if (value instanceof Float number) {
            json.writeNumber(number);
        } else if (value instanceof Number number && !(value instanceof BigDecimal)) {
            json.writeNumber(number.longValue());
        } else if (value instanceof Boolean truth) {
            json.writeBoolean(truth);
        } else if (value instanceof byte[] bytes) {
            json.writeBinary(bytes);
        } else if (value instanceof ByteBuffer bytes) {
            json.writeBinary(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
        } else if (value instanceof Struct struct) {
            write(json, struct, Set.of());
        } else if (value instanceof List<?> elements) {
            json.writeStartArray();
            for (Object element : elements) {
                write(json, element);
            }
            json.writeEndArray();
        } else if (value instanceof Map<?, ?> entries) {
            json.writeStartObject();
            for (Map.Entry<?, ?> entry : entries.entrySet()) {
                json.writeFieldName(String.valueOf(entry.getKey()));
                write(json, entry.getValue());
            }
            json.writeEndObject();
        } else {
            // Connect's own numbers and times, which the settings ask of no connector.
            throw new DataException("a value of " + value.getClass().getSimpleName());
        }
    }

    private static void write(JsonGenerator json, Struct struct, Set<String> without) throws IOException {
        json.writeStartObject();
        for (Field field : struct.schema().fields()) {
            if (!without.contains(field.name())) {
                json.writeFieldName(field.name());
                write(json, struct.getWithoutDefault(field.name()));
            }
        }
        json.writeEndObject();
    }
}
