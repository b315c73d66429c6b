package headrace.serve;

import java.io.FileNotFoundException;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.delta.DeltaIllegalStateException;
import org.apache.spark.sql.delta.DeltaTimeTravelSpec;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * The catalog of served sessions: a name is the Delta table at its published version, and nothing can be changed.
 *
 * Names are listed by Spark's own catalog, which the server keeps at what is published; what a name means is decided here.
 */
public final class PublishedCatalog extends DelegatingCatalogExtension {
    private static final Logger LOG = LoggerFactory.getLogger(PublishedCatalog.class);

    @Override
    public Table loadTable(Identifier name) throws NoSuchTableException {
        SparkSession session = SparkSession.active();
        if (Guard.trusts(session)) {
            return isPath(name) ? at(session, name, Option.empty()) : super.loadTable(name);
        }
        Publications.Relation relation = name.namespace().length == 1
            ? Publications.shown(session).relation(name.namespace()[0], name.name())
            : null;
        if (relation == null) {
            throw new NoSuchTableException(name);
        }
        if (relation.isView()) {
            return super.loadTable(name);
        }
        DeltaTableV2 table = table(session, relation.path(), name.toString(), Option.apply((Object) relation.version()));
        try {
            table.initialSnapshot();
        } catch (Exception failed) {
            // Scala's exceptions are not declared.
            if (failed instanceof AnalysisException || failed instanceof FileNotFoundException
                    || failed instanceof DeltaIllegalStateException) {
                LOG.warn("{} cannot be opened at version {}: {}", relation.key(), relation.version(), failed.getClass().getName());
                throw new Refusal(Publications.gone(relation.key()));
            }
            throw failed;
        }
        return table;
    }

    /** Whether the server itself names a table by its path. */
    private static boolean isPath(Identifier name) {
        return name.namespace().length == 1 && name.namespace()[0].equalsIgnoreCase("delta");
    }

    private static Table at(SparkSession session, Identifier name, Option<Object> version) {
        return table(session, name.name(), name.toString(), version);
    }

    private static DeltaTableV2 table(SparkSession session, String path, String name, Option<Object> version) {
        Option<DeltaTimeTravelSpec> at = version.isEmpty()
            ? Option.empty()
            : Option.apply(new DeltaTimeTravelSpec(Option.empty(), version, Option.apply("headrace"), false));
        return DeltaTableV2.apply(
            session, new Path(path), Option.empty(), Option.apply(name), Map$.MODULE$.<String, String>empty(), at);
    }

    @Override
    public Table loadTable(Identifier name, long timestamp) {
        throw new Refusal("ask the past by SET headrace.as_of = '<time or position>'");
    }

    @Override
    public Table loadTable(Identifier name, String version) {
        SparkSession session = SparkSession.active();
        if (Guard.trusts(session) && isPath(name)) {
            return at(session, name, Option.apply((Object) Long.valueOf(version)));
        }
        throw new Refusal("ask the past by SET headrace.as_of = '<time or position>'");
    }

    @Override
    public boolean tableExists(Identifier name) {
        return name.namespace().length == 1
            && Publications.shown(SparkSession.active()).relation(name.namespace()[0], name.name()) != null;
    }

    @Override
    public Set<TableCatalogCapability> capabilities() {
        return Set.of();
    }

    @Override
    public Table createTable(Identifier name, StructType schema, Transform[] partitions, Map<String, String> properties) {
        throw readOnly();
    }

    @Override
    public Table createTable(Identifier name, Column[] columns, Transform[] partitions, Map<String, String> properties) {
        throw readOnly();
    }

    @Override
    public Table createTableLike(Identifier name, TableInfo info, Table source) {
        throw readOnly();
    }

    @Override
    public Table alterTable(Identifier name, TableChange... changes) {
        throw readOnly();
    }

    @Override
    public boolean dropTable(Identifier name) {
        throw readOnly();
    }

    @Override
    public boolean purgeTable(Identifier name) {
        throw readOnly();
    }

    @Override
    public void renameTable(Identifier from, Identifier to) {
        throw readOnly();
    }

    @Override
    public void createNamespace(String[] namespace, Map<String, String> properties) throws NamespaceAlreadyExistsException {
        if (!Guard.trusts(SparkSession.active())) {
            throw readOnly();
        }
        super.createNamespace(namespace, properties);
    }

    @Override
    public void alterNamespace(String[] namespace, NamespaceChange... changes) {
        throw readOnly();
    }

    @Override
    public boolean dropNamespace(String[] namespace, boolean cascade) {
        throw readOnly();
    }

    private static Refusal readOnly() {
        return new Refusal("the lake's tables are written by loads alone");
    }
}
