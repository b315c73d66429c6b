package headrace.serve;

import io.delta.sql.DeltaSparkSessionExtension;
import java.util.Map;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.classic.SparkSession;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Sessions of loads, in the same context as the served ones: with Delta's own rules and catalog, and without Guard.
 *
 * Sessions that are made of them are such sessions too, and those of clients never are: they are made of the served one.
 */
public final class Loads {
    private Loads() {}

    /** Return a session with these settings, which those that are made of it begin with as well. */
    public static SparkSession session(SparkSession served, Map<String, String> settings) {
        SparkSessionExtensions extensions = new SparkSessionExtensions();
        new DeltaSparkSessionExtension().apply(extensions);
        scala.collection.immutable.Map<String, String> given =
            scala.collection.immutable.Map.from(CollectionConverters.asScala(settings));
        return new SparkSession(
            served.sparkContext(), Option.apply(served.sharedState()), Option.empty(), extensions, given,
            Map$.MODULE$.<String, String>empty());
    }
}
