package headrace.debezium;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.config.Configuration;
import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.DebeziumEngine.RecordCommitter;
import io.debezium.engine.RecordChangeEvent;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.DataOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;

/**
 * Runs Debezium's engine for an edge (edge/debezium/child.py has the frames): records go to standard output, and what may be
 * marked as processed comes from standard input, whose end is this process's end too.
 *
 * Settings, which may hold a password, come in the first line of standard input; where the source is read from in the second,
 * once the hello has said what the server is like: the edge keeps it, with its checkpoint, and nothing is written here.
 */
public final class RecordEngine {
    private static final int PROTOCOL = 6;
    private static final ObjectMapper JSON = new ObjectMapper();
    /** SQL states whose words are of connections, names and rights, never of rows. */
    private static final List<String> PLAIN_STATES = List.of("08", "28", "3D", "42", "53", "55", "57");
    private static final int LONGEST_REASON = 600;
    private static final byte[] NONE = {};

    static byte[][] offset;

    private final DataOutputStream out =
            new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16));
    private final JsonConverter converter = new JsonConverter();
    private final RecordJson json = new RecordJson(converter);
    /** Of a record: length, kind, numbers of its schemas, lengths of its five parts. */
    private final ByteBuffer head = ByteBuffer.allocate(33);
    private final Map<String, Topic> topics = new HashMap<>();
    private int described;
    private final String name;
    private final String transactions;
    private final String heartbeats;
    /** Whether each change has a place of its own in the log; elsewhere that of its transaction is read alone. */
    private final boolean hasOwnPlaces;
    /** The source's own key of its offsets, which is the same in all records of a connector, and that as JSON. */
    private Map<String, ?> partition;
    private byte[] partitionJson;
    /** Records that an acknowledgement may name: those between transactions. */
    private final ArrayDeque<Numbered> waiting = new ArrayDeque<>();
    private RecordCommitter<RecordChangeEvent<SourceRecord>> committer;
    private long written;
    private volatile boolean polls;

    private record Numbered(long number, RecordChangeEvent<SourceRecord> event, boolean isHeartbeat) {}

    private record Described(Schema schema, int number) {}

    /** A topic's name, and the newest schemas of its keys and values: a former one is not used again. */
    private record Topic(byte[] name, Described[] schemas) {}

    /** Where the source is read from, as the edge has it; what the engine adds is for its own process. */
    public static final class EdgeOffsets extends MemoryOffsetBackingStore {
        @Override
        public void start() {
            super.start();
            if (offset != null) {
                data.put(ByteBuffer.wrap(offset[0]), ByteBuffer.wrap(offset[1]));
            }
        }

        @Override
        public java.util.Set<Map<String, Object>> connectorPartitions(String connector) {
            return java.util.Set.of();
        }
    }

    private RecordEngine(Properties settings) throws IOException {
        name = settings.getProperty("name");
        heartbeats = settings.getProperty("topic.heartbeat.prefix", "__debezium-heartbeat") + ".";
        transactions = settings.getProperty("topic.prefix") + ".transaction";
        hasOwnPlaces = !settings.getProperty("connector.class").matches(".*\\.(postgresql|mysql|mariadb)\\..*");
        // A null is no default.
        converter.configure(Map.of("schemas.enable", "false", "replace.null.with.default", "false"), false);
    }

    public static void main(String[] arguments) throws IOException {
        // Whatever a library prints is no frame.
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JsonNode hello = JSON.readTree(in.readLine());
        Properties settings = new Properties();
        hello.get("settings").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        settings.put("offset.storage", EdgeOffsets.class.getName());
        RecordEngine engine = new RecordEngine(settings);
        engine.greet(settings, hello);
        String begin = in.readLine();
        if (begin == null) {
            Runtime.getRuntime().halt(0);
        }
        JsonNode from = JSON.readTree(begin);
        if (!from.isNull()) {
            offset = new byte[][] {bytes(from.get(0)), bytes(from.get(1))};
        }
        engine.run(settings, in);
    }

    private static byte[] bytes(JsonNode text) {
        return text.asText().getBytes(StandardCharsets.UTF_8);
    }

    /** Say which protocol this is and what the server is like now, ahead of anything that Debezium makes there. */
    private void greet(Properties settings, JsonNode hello) throws IOException {
        if (hello.get("protocol").asInt() != PROTOCOL) {
            frame('H', JSON.writeValueAsBytes(Map.of("protocol", PROTOCOL)));
            out.flush();
            Runtime.getRuntime().halt(2);
        }
        String connector = settings.getProperty("connector.class");
        try {
            // Of the two classes the other one's connector is not there. Other servers are not asked.
            Map<String, Object> server = connector.contains(".postgresql.")
                    ? PostgresServer.look(Configuration.from(settings))
                    : connector.matches(".*\\.(mysql|mariadb)\\..*")
                            ? BinlogServer.look(
                                    settings, hello.path("offset").isNull() ? null : JSON.readTree(hello.get("offset").asText()))
                            : Map.of("system_identifier", "not asked");
            frame('H', JSON.writeValueAsBytes(Map.of("protocol", PROTOCOL, "server", server)));
            out.flush();
        } catch (SQLException | ReflectiveOperationException | RuntimeException | LinkageError error) {
            frame('H', JSON.writeValueAsBytes(Map.of("protocol", PROTOCOL)));
            end(error, null);
        }
    }

    private void run(Properties settings, BufferedReader in) throws IOException {
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
                DebeziumEngine.create(io.debezium.engine.format.ChangeEventFormat.of(Connect.class))
                        .using(settings)
                        .using(new DebeziumEngine.ConnectorCallback() {
                            @Override
                            public void pollingStarted() {
                                polls = true;
                            }
                        })
                        .using((success, message, error) -> end(success ? null : error, message))
                        .notifying(this::write)
                        .build();
        Thread runner = new Thread(engine, "engine");
        runner.setDaemon(true);
        // As where a jar is of another release.
        runner.setUncaughtExceptionHandler((thread, error) -> end(error, null));
        runner.start();
        try {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                acknowledge(Long.parseLong(line.trim()));
            }
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
        // Nothing is lost: the edge knows from where to read again.
        Runtime.getRuntime().halt(0);
    }

    private synchronized void write(
            List<RecordChangeEvent<SourceRecord>> events, RecordCommitter<RecordChangeEvent<SourceRecord>> committer)
            throws InterruptedException {
        this.committer = committer;
        try {
            for (RecordChangeEvent<SourceRecord> event : events) {
                SourceRecord record = event.record();
                Topic topic = topics.computeIfAbsent(
                        record.topic(), each -> new Topic(each.getBytes(StandardCharsets.UTF_8), new Described[2]));
                int keySchema = number(topic.schemas(), 0, record.keySchema());
                int valueSchema = number(topic.schemas(), 1, record.valueSchema());
                byte[] from = NONE;
                byte[] place = NONE;
                boolean hasPlace = !isOfTransaction(record);
                if (hasPlace) {
                    from = partitionOf(record);
                    place = converter.fromConnectData(name, null, record.sourceOffset());
                }
                json.reset();
                int key = json.add(record.keySchema(), record.key());
                int value = json.add(record.valueSchema(), record.value());
                int size = topic.name().length + from.length + place.length + Math.max(key, 0) + Math.max(value, 0);
                head.clear().putInt(head.capacity() - 4 + size).put((byte) 'R').putInt(keySchema).putInt(valueSchema);
                head.putInt(topic.name().length).putInt(hasPlace ? from.length : -1).putInt(hasPlace ? place.length : -1);
                head.putInt(key).putInt(value);
                out.write(head.array());
                out.write(topic.name());
                out.write(from);
                out.write(place);
                json.writeTo(out);
                written++;
                boolean isStatus = record.topic().equals(transactions);
                if (isStatus || record.topic().startsWith(heartbeats)) {
                    await(new Numbered(written, event, !isStatus));
                }
            }
            out.flush();
        } catch (IOException gone) {
            Runtime.getRuntime().halt(0);
        }
    }

    private byte[] partitionOf(SourceRecord record) {
        if (!record.sourcePartition().equals(partition)) {
            partition = record.sourcePartition();
            partitionJson = converter.fromConnectData(name, null, List.of(name, partition));
        }
        return partitionJson;
    }

    /** Whether a record is a change that has the place of its transaction: a truncate of a binlog is one by itself. */
    private boolean isOfTransaction(SourceRecord record) {
        return !hasOwnPlaces
                && record.value() instanceof Struct value
                && RecordJson.isChange(value)
                && !"t".equals(value.getString("op"));
    }

    /** Of heartbeats in a row the first waits, which is acknowledged soonest, and the newest. */
    private void await(Numbered next) {
        if (next.isHeartbeat() && !waiting.isEmpty() && waiting.peekLast().isHeartbeat()) {
            Numbered last = waiting.pollLast();
            if (waiting.isEmpty() || !waiting.peekLast().isHeartbeat()) {
                waiting.add(last);
            }
        }
        waiting.add(next);
    }

    /** Mark the newest record as processed that is not behind this number: its place may be discarded by the source. */
    private synchronized void acknowledge(long number) throws InterruptedException {
        Numbered newest = null;
        while (!waiting.isEmpty() && waiting.peek().number() <= number) {
            newest = waiting.poll();
        }
        if (newest != null) {
            committer.markProcessed(newest.event());
            committer.markBatchFinished();
        }
    }

    /** Return the number of a schema of a topic's keys or values, written ahead of its first record; -1 for none. */
    private int number(Described[] newest, int use, Schema schema) throws IOException {
        if (schema == null) {
            return -1;
        }
        Described former = newest[use];
        if (former == null || former.schema() != schema) {
            boolean isSame = former != null && former.schema().equals(schema);
            newest[use] = new Described(schema, isSame ? former.number() : described++);
            if (!isSame) {
                byte[] content = JSON.writeValueAsBytes(converter.asJsonSchema(schema));
                out.writeInt(5 + content.length);
                out.writeByte('S');
                out.writeInt(newest[use].number());
                out.write(content);
            }
        }
        return newest[use].number();
    }

    private void frame(char kind, byte[] content) throws IOException {
        out.writeInt(1 + content.length);
        out.writeByte(kind);
        out.write(content);
    }

    private synchronized void end(Throwable error, String message) {
        try {
            frame('E', reason(error, message).getBytes(StandardCharsets.UTF_8));
            out.flush();
        } catch (IOException gone) {
            // The edge has ended.
        }
        Runtime.getRuntime().halt(1);
    }

    /** Return why the engine ended: an exception's words may be of rows once it reads, and then only its kind is named. */
    private String reason(Throwable error, String message) {
        StringBuilder words = new StringBuilder();
        for (Throwable each = error; each != null && words.length() < LONGEST_REASON; each = each.getCause()) {
            words.append(words.isEmpty() ? "" : ": ").append(each.getClass().getSimpleName());
            String state = each instanceof SQLException sql ? sql.getSQLState() : null;
            if (state != null) {
                words.append(" (SQL state ").append(state).append(')');
            }
            if (each.getMessage() != null && (!polls || state != null && PLAIN_STATES.contains(state.substring(0, 2)))) {
                words.append(" ").append(each.getMessage().replaceAll("\\s+", " "));
            }
        }
        if (words.isEmpty()) {
            words.append(polls || message == null ? "it ended by itself" : message);
        }
        return words.substring(0, Math.min(words.length(), LONGEST_REASON));
    }
}
