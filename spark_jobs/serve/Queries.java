package headrace.serve;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The queries that run: how many there may be, for how long and of how many rows; and the record of each in the audit file.
 *
 * A query is recorded before it begins, and none begins that cannot be recorded.
 */
public final class Queries {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int LONGEST_TEXT = 10_000;

    private final int mostAtOnce;
    private final long mostRows;
    private final long mostMillis;
    private final Path audit;
    private final List<Query> running = new ArrayList<>();
    private final Map<String, Query> byName = new HashMap<>();
    private long number;

    private static final Logger LOG = LoggerFactory.getLogger(Queries.class);

    /** `audit` is a file of JSON lines, appended to; empty for none. */
    public Queries(int mostAtOnce, long mostRows, int mostSeconds, String audit) {
        this.mostAtOnce = mostAtOnce;
        this.mostRows = mostRows;
        this.mostMillis = mostSeconds * 1000L;
        this.audit = audit.isEmpty() ? null : Path.of(audit);
        Thread watch = new Thread(this::watch, "limits of queries");
        watch.setDaemon(true);
        watch.start();
    }

    /** One query of a client, until it has taken its rows. */
    public static final class Query {
        private final long number;
        private final String user;
        private final String protocol;
        private final String session;
        private final long began = System.currentTimeMillis();
        private String name;
        private String operation;
        private Runnable cancel;
        private long rows;
        private boolean late;

        private Query(long number, String user, String protocol, String session) {
            this.number = number;
            this.user = user;
            this.protocol = protocol;
            this.session = session;
        }
    }

    /** Record a query that begins; throws Refusal where too many run, or where it cannot be recorded. */
    public synchronized Query begin(String user, String protocol, String session, String text) {
        if (running.size() >= mostAtOnce) {
            throw new Refusal("busy: " + mostAtOnce + " queries run; try again");
        }
        Query query = new Query(++number, user, protocol, session);
        ObjectNode line = line(query, "begins");
        line.put("query", text.length() > LONGEST_TEXT ? text.substring(0, LONGEST_TEXT) : text);
        write(line);
        running.add(query);
        return query;
    }

    /** Give a query the name by which its protocol knows it, that of its operation in Spark, and how it is cancelled. */
    public synchronized void named(Query query, String name, String operation, Runnable cancel) {
        if (byName.putIfAbsent(name, query) != null) {
            throw new Refusal("an operation of this name runs already");
        }
        query.name = name;
        query.operation = operation;
        query.cancel = cancel;
    }

    /** Add rows that are sent to the client; throws Refusal beyond the limits. */
    public synchronized void count(String name, long rows) {
        Query query = byName.get(name);
        if (query == null) {
            return;
        }
        if (query.late) {
            throw late();
        }
        query.rows += rows;
        if (query.rows > mostRows) {
            throw new Refusal("the answer has more than " + mostRows + " rows: ask for fewer, or ask the operator for more");
        }
    }

    public synchronized boolean isLate(String name) {
        Query query = byName.get(name);
        return query != null && query.late;
    }

    /** Return a limit in seconds that a client asked for, 0 for none, within that of the server. */
    long within(long seconds) {
        return seconds > 0 ? Math.min(seconds, mostMillis / 1000) : mostMillis / 1000;
    }

    Refusal late() {
        return new Refusal("the query took longer than " + mostMillis / 1000 + " seconds");
    }

    public synchronized void end(String name, String how) {
        Query query = byName.get(name);
        if (query != null) {
            end(query, how);
        }
    }

    public synchronized void end(Query query, String how) {
        if (query.name != null) {
            byName.remove(query.name, query);
            Publications.forget(query.operation);
        }
        if (!running.remove(query)) {
            return;
        }
        ObjectNode line = line(query, query.late ? "too long" : how);
        line.put("seconds", (System.currentTimeMillis() - query.began) / 1000.0);
        line.put("rows", query.rows);
        try {
            write(line);
        } catch (Refusal failed) {
            // The next query is refused for it; this one has ended.
            LOG.warn("the end of query {} cannot be recorded", query.number);
        }
    }

    /** End the queries of a session; `user` is its own, or null where nobody else can name the session. */
    public synchronized void endAllOf(String user, String session) {
        for (Query query : new ArrayList<>(running)) {
            if ((user == null || query.user.equals(user)) && query.session.equals(session)) {
                end(query, "closed");
            }
        }
    }

    public synchronized int running() {
        return running.size();
    }

    private void watch() {
        while (true) {
            try {
                Thread.sleep(200);
            } catch (InterruptedException ended) {
                return;
            }
            for (Query query : takeLate()) {
                try {
                    query.cancel.run();
                } catch (RuntimeException failed) {
                    LOG.warn("query {} could not be cancelled: {}", query.number, failed.getClass().getName());
                }
                end(query, "too long");
            }
        }
    }

    private synchronized List<Query> takeLate() {
        List<Query> late = new ArrayList<>();
        long now = System.currentTimeMillis();
        for (Query query : running) {
            if (!query.late && query.cancel != null && now - query.began > mostMillis) {
                query.late = true;
                late.add(query);
            }
        }
        return late;
    }

    private static ObjectNode line(Query query, String what) {
        ObjectNode line = JSON.createObjectNode();
        line.put("at", Instant.now().toString());
        line.put("number", query.number);
        line.put("state", what);
        line.put("user", query.user);
        line.put("protocol", query.protocol);
        line.put("session", query.session);
        return line;
    }

    private void write(ObjectNode line) {
        if (audit == null) {
            return;
        }
        byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
        // Opened for each line, so that a file that was moved aside is made again.
        try (FileChannel file = FileChannel.open(
                audit,
                Set.of(StandardOpenOption.CREATE, StandardOpenOption.APPEND),
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")))) {
            file.write(ByteBuffer.wrap(bytes));
        } catch (IOException failed) {
            throw new Refusal("queries cannot be recorded now; tell the operator of this server");
        }
    }
}
