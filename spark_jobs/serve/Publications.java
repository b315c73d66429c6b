package headrace.serve;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;

/**
 * What is published, as the process last read it, and which publication each query is shown.
 *
 * A query keeps the publication that was the newest when it named its first table, however many tables it names later and however
 * often parts of it are analysed: what it is known by is the operation of its protocol. A session that set `headrace.as_of` is
 * shown a publication of the past, which the Python side looks up.
 */
public final class Publications {
    public static final String AS_OF = "headrace.as_of";
    private static final ObjectMapper JSON = new ObjectMapper();
    /** More than run at once; an operation is forgotten when it ends, but for some that were cancelled in their first moment. */
    private static final int MOST_OPERATIONS = 2_000;
    private static final int MOST_OF_THE_PAST = 32;
    private static final int SECONDS_OF_A_LOOK = 60;
    private static final int LONGEST_REASON = 10_000;
    /** What Spark and Delta report of a file that is not there. */
    private static final Pattern MISSING = Pattern.compile("FILE_NOT_EXIST|FileNotFoundException|DELTA_FILE_NOT_FOUND|NoSuchKey");

    private static volatile Publication newest = new Publication("", Map.of());
    private static final Map<String, Publication> OF_OPERATIONS = new Bounded<>(MOST_OPERATIONS);
    private static final Map<String, Publication> OF_THE_PAST = new Bounded<>(MOST_OF_THE_PAST);
    private static final BlockingQueue<Question> QUESTIONS = new LinkedBlockingQueue<>();
    /** What an analysis belongs to that is no operation of its own. */
    private static final ThreadLocal<String> ANALYSIS = new ThreadLocal<>();

    private Publications() {}

    /** A table at a version, known as `database.name`; or a view, whose version is -1 and which is in Spark's own list of names. */
    public record Relation(String key, String path, long version) {
        public boolean isView() {
            return version < 0;
        }
    }

    /** Relations by their names, `database.name`. */
    public record Publication(String number, Map<String, Relation> relations) {
        public Relation relation(String database, String name) {
            return relations.get(key(database, name));
        }

        public boolean holds(String path, long version) {
            for (Relation relation : relations.values()) {
                if (relation.version() == version && samePath(relation.path(), path)) {
                    return true;
                }
            }
            return false;
        }
    }

    /** A publication of the past that a session asks for; the Python side takes it, and answers or fails it. */
    public static final class Question {
        private final String asOf;
        private final CompletableFuture<String> answer = new CompletableFuture<>();

        private Question(String asOf) {
            this.asOf = asOf;
        }

        public String asOf() {
            return asOf;
        }

        public void answer(String publication) {
            answer.complete(publication);
        }

        public void fail(String reason) {
            answer.completeExceptionally(new Refusal(reason));
        }
    }

    private static final class Bounded<V> extends LinkedHashMap<String, V> {
        private final int most;

        private Bounded(int most) {
            super(16, 0.75f, true);
            this.most = most;
        }

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, V> eldest) {
            return size() > most;
        }
    }

    /** Take what is published now, of which queries that begin from here on are shown all. */
    public static void publish(String publication) throws Exception {
        newest = parse(publication);
    }

    /** Wait for a session that asks for the past; null when none came within a second. */
    public static Question takeQuestion() throws InterruptedException {
        return QUESTIONS.poll(1, TimeUnit.SECONDS);
    }

    /** Return what the operation of this thread is shown. */
    public static Publication shown(SparkSession session) {
        String asOf = session.conf().get(AS_OF, "").trim();
        String operation = operation(session);
        if (operation == null) {
            return asOf.isEmpty() ? newest : past(asOf);
        }
        String key = operation + " " + asOf;
        synchronized (OF_OPERATIONS) {
            Publication shown = OF_OPERATIONS.get(key);
            if (shown != null) {
                return shown;
            }
        }
        Publication chosen = asOf.isEmpty() ? newest : past(asOf);
        synchronized (OF_OPERATIONS) {
            return OF_OPERATIONS.computeIfAbsent(key, missing -> chosen);
        }
    }

    /** Return the reason to give for a query that failed for lack of a table's file; null for any other failure. */
    static String explainMissing(Throwable failed) {
        StringBuilder words = new StringBuilder();
        for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
            String said = cause.toString();
            // A query's own words may be any number; what names a file is at the beginning.
            words.append(said, 0, Math.min(said.length(), LONGEST_REASON)).append('\n');
        }
        if (!MISSING.matcher(words).find()) {
            return null;
        }
        String text = words.toString().replaceAll("file:/+", "/");
        List<Publication> shown = new ArrayList<>();
        synchronized (OF_THE_PAST) {
            shown.addAll(OF_THE_PAST.values());
        }
        shown.add(newest);
        for (Publication publication : shown) {
            for (Relation relation : publication.relations().values()) {
                if (!relation.isView() && names(text, relation.path())) {
                    return gone(relation.key());
                }
            }
        }
        return null;
    }

    /** Return what to say of a table whose files, or commits, are not there at the version that a query is shown. */
    static String gone(String table) {
        return table + " is not there as this query is shown it: maintenance removes files some days after they were replaced. Ask again, "
            + "with a later headrace.as_of or none; where that fails too, files were lost: tell the operator of the lake";
    }

    /** Let what this thread analyses be one operation, until `endAnalysis`. */
    public static void beginAnalysis(String name) {
        ANALYSIS.set(name);
    }

    public static void endAnalysis() {
        forget(ANALYSIS.get());
        ANALYSIS.remove();
    }

    /** Forget what an operation was shown: it has ended. */
    static void forget(String operation) {
        synchronized (OF_OPERATIONS) {
            OF_OPERATIONS.keySet().removeIf(key -> key.startsWith(operation + " "));
        }
    }

    private static String operation(SparkSession session) {
        String analysis = ANALYSIS.get();
        if (analysis != null) {
            return analysis;
        }
        String tags = session.sparkContext().getLocalProperty("spark.job.tags");
        if (tags != null) {
            for (String tag : tags.split(",")) {
                if (tag.startsWith("SparkConnect_OperationTag_")) {
                    return tag;
                }
            }
        }
        return session.sparkContext().getLocalProperty("spark.jobGroup.id");
    }

    private static Publication past(String asOf) {
        // As it is seen from the newest publication: a later one may have dropped a table.
        String key = newest.number() + " " + asOf;
        synchronized (OF_THE_PAST) {
            Publication publication = OF_THE_PAST.get(key);
            if (publication != null) {
                return publication;
            }
        }
        Question question = new Question(asOf);
        QUESTIONS.add(question);
        try {
            Publication publication = parse(question.answer.get(SECONDS_OF_A_LOOK, TimeUnit.SECONDS));
            synchronized (OF_THE_PAST) {
                OF_THE_PAST.put(key, publication);
            }
            return publication;
        } catch (java.util.concurrent.ExecutionException failed) {
            throw failed.getCause() instanceof Refusal refusal ? refusal : new Refusal("that publication cannot be looked up");
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
            throw new Refusal("the query was cancelled");
        } catch (Exception failed) {
            throw new Refusal("that publication cannot be looked up; try again");
        }
    }

    private static Publication parse(String text) throws Exception {
        JsonNode given = JSON.readTree(text);
        Map<String, Relation> relations = new HashMap<>();
        for (JsonNode each : given.get("relations")) {
            Relation relation = relation(each);
            relations.put(relation.key(), relation);
        }
        return new Publication(given.get("number").asText(), relations);
    }

    /** Return a relation with what it has in common with the newest publication: queries hold many of them. */
    private static Relation relation(JsonNode given) {
        String key = key(given.get("database").asText(), given.get("name").asText());
        String path = given.get("path").asText();
        long version = given.get("version").asLong();
        Relation known = newest.relations().get(key);
        if (known == null || !known.path().equals(path)) {
            return new Relation(key, path, version);
        }
        return known.version() == version ? known : new Relation(known.key(), known.path(), version);
    }

    private static String key(String database, String name) {
        return (database + "." + name).toLowerCase(Locale.ROOT);
    }

    private static boolean samePath(String ours, String used) {
        return plain(ours).equals(plain(used));
    }

    /** Whether a text names something in a folder, as an address or as it is. */
    private static boolean names(String text, String folder) {
        return text.contains(plain(folder) + "/") || text.contains(java.net.URI.create(plain(folder)).getPath() + "/");
    }

    private static String plain(String path) {
        return new Path(path).toUri().toString().replaceFirst("^file:/+", "/");
    }
}
