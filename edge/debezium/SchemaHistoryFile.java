package headrace.debezium;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.document.Document;
import io.debezium.document.DocumentReader;
import io.debezium.document.DocumentWriter;
import io.debezium.relational.history.AbstractSchemaHistory;
import io.debezium.relational.history.HistoryRecord;
import io.debezium.relational.history.SchemaHistoryException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;

/**
 * What tables were like, for connectors whose logs do not say it: a line for each change, in the state folder of the edge, which
 * makes the file and knows how long it has to be (edge/debezium/checkpoint.py). A change is durable before any row behind it is sent.
 */
public final class SchemaHistoryFile extends AbstractSchemaHistory {
    /** In the folder of this process, which is the edge's state folder. */
    private static final Path FILE = Path.of("debezium-schema-history.jsonl");

    private static final ObjectMapper JSON = new ObjectMapper();

    /** Told by its name: once Debezium has said that it polls, no words of an exception are passed on. */
    private static final class SchemaHistoryDamaged extends SchemaHistoryException {
        SchemaHistoryDamaged(Throwable cause) {
            super(cause);
        }
    }

    @Override
    public void start() {
        super.start();
        try {
            // What a crash has cut was not taken for durable, and is read again from the log.
            byte[] content = Files.readAllBytes(FILE);
            int end = content.length;
            while (end > 0 && content[end - 1] != '\n') {
                end--;
            }
            if (end < content.length) {
                try (FileChannel file = FileChannel.open(FILE, StandardOpenOption.WRITE)) {
                    file.truncate(end).force(true);
                }
            }
        } catch (IOException error) {
            throw new SchemaHistoryException("the schema history cannot be read", error);
        }
    }

    @Override
    protected synchronized void storeRecord(HistoryRecord record) {
        try (FileChannel file = FileChannel.open(FILE, StandardOpenOption.WRITE, StandardOpenOption.APPEND)) {
            ByteBuffer line = StandardCharsets.UTF_8.encode(DocumentWriter.defaultWriter().write(record.document()) + "\n");
            while (line.hasRemaining()) {
                file.write(line);
            }
            file.force(true);
        } catch (IOException error) {
            throw new SchemaHistoryException("the schema history cannot be written", error);
        }
    }

    @Override
    protected void recoverRecords(Consumer<HistoryRecord> records) {
        List<HistoryRecord> found = new ArrayList<>();
        try {
            String offset = RecordEngine.offset == null ? null : new String(RecordEngine.offset[1], StandardCharsets.UTF_8);
            for (String line : Files.readAllLines(FILE)) {
                Document change = DocumentReader.defaultReader().read(line);
                // Of other logs than binlogs Debezium itself tells what is before the offset.
                if (offset != null && JSON.readTree(offset).has("file")) {
                    if (!isBefore(JSON.readTree(line).path("position"), JSON.readTree(offset))) {
                        continue;
                    }
                    // Debezium compares GTIDs once more, and takes MariaDB's domains for ones in which one server writes.
                    change.setDocument(HistoryRecord.Fields.POSITION, DocumentReader.defaultReader().read(offset));
                }
                found.add(new HistoryRecord(change));
            }
        } catch (IOException | IllegalArgumentException error) {
            throw new SchemaHistoryDamaged(error);
        }
        found.forEach(records);
    }

    /** Whether a change is before the offset: one that has the same GTIDs ahead of it comes again, and is not made twice. */
    private static boolean isBefore(JsonNode position, JsonNode offset) {
        return position.has("snapshot") || !gtids(position).equals(gtids(offset)) && place(position) <= place(offset);
    }

    /** GTIDs without the order in which they are written, which differs. */
    private static Set<String> gtids(JsonNode position) {
        return Set.copyOf(Arrays.asList(position.path("gtids").asText().split(",")));
    }

    private static long place(JsonNode position) {
        String file = position.path("file").asText();
        return Long.parseLong(file.substring(file.lastIndexOf('.') + 1)) << 32 | position.path("pos").asLong();
    }

    @Override
    public boolean exists() {
        try {
            return Files.size(FILE) > 0;
        } catch (IOException error) {
            return false;
        }
    }

    @Override
    public boolean storageExists() {
        return Files.exists(FILE);
    }
}
