package headrace.serve;

import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedGenerator;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.FileSourceMetadataAttribute$;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.DescribeRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.delta.DeltaLogFileIndex;
import org.apache.spark.sql.delta.files.TahoeLogFileIndex;
import org.apache.spark.sql.execution.command.CreateViewCommand;
import org.apache.spark.sql.execution.command.DescribeTableCommand;
import org.apache.spark.sql.execution.command.ExplainCommand;
import org.apache.spark.sql.execution.command.ResetCommand;
import org.apache.spark.sql.execution.command.SetCommand;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.Option;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/**
 * The rule of served sessions: queries of what is published, and nothing else. Sessions of the server itself are trusted by name.
 *
 * It looks twice. Each statement is refused when it is parsed, before anything of it is looked up or run, unless all of it is on
 * the lists below. Each analysed plan, whatever client or view it came from, is refused unless all that it reads is the published
 * version of a table, of one publication.
 */
public final class Guard implements scala.Function1<SparkSessionExtensions, BoxedUnit> {
    private static final Set<SparkSession> TRUSTED = Collections.newSetFromMap(new IdentityHashMap<>());
    /** Commands that show something or change the session alone, by the names of their classes before and after analysis. */
    private static final Set<String> COMMANDS = Set.of(
        "ShowTables", "ShowTablesCommand", "ShowTablesExec", "ShowViews", "ShowViewsCommand", "ShowNamespaces",
        "ShowNamespacesCommand", "ShowColumns", "ShowColumnsCommand", "ShowFunctions", "ShowFunctionsCommand",
        "ShowCurrentNamespaceCommand", "ShowCatalogsCommand", "DescribeRelation", "DescribeTableCommand", "DescribeColumn",
        "DescribeColumnCommand", "DescribeFunction", "DescribeFunctionCommand", "DescribeQueryCommand", "DescribeNamespace",
        "DescribeDatabaseCommand", "SetNamespaceCommand", "SetCatalogAndNamespace");
    /** What a session may set, and read. */
    static final Set<String> SETTINGS = Set.of(Publications.AS_OF, "spark.sql.session.timeZone", "spark.sql.ansi.enabled");
    /** Nodes that are no commands to Spark and still write, run programs or name tables in a roundabout way. */
    private static final String FORBIDDEN_NODES =
        "(Insert|Append|Overwrite|Create|Replace|Delete|Update|Merge|Compound|Delta|Cache|Uncache|Drop(?!Columns)|Alter|Truncate"
            + "|Script|Call|Load|Restore|Clone|Optimize|Analyze|Repair|Refresh).*|.*Statement|.*ExecuteImmediate.*|.*UnresolvedIdentifier.*"
            + "|.*TimeTravel|.*Stream.*";
    /** Expressions of functions that Functions.java refuses, in case they come by a way that names no function. */
    private static final String FORBIDDEN_EXPRESSIONS =
        ".*(Reflect|Python|Xml|Avro|Protobuf|UnresolvedIdentifier).*|(XPath|InputFile|CurrentUser|Hll|Kll|Theta|Tuple).*";
    /** Marks a column that says in which file a row is. */
    private static final String FILE_COLUMN = FileSourceMetadataAttribute$.MODULE$.FILE_SOURCE_METADATA_COL_ATTR_KEY();
    /** Leaves of an analysed plan that read nothing, and those of Delta's own look into a table's log. */
    private static final Set<String> LEAVES = Set.of(
        "OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "UnionLoopRef", "LogicalRDD", "ExternalRDD", "CommandResult",
        "ResolvedNamespace", "ResolvedIdentifier", "ResolvedTable", "ResolvedPersistentView", "ResolvedTempView",
        "ResolvedNonPersistentFunc", "LogicalQueryStage", "InMemoryRelation", "EmptyRelation", "EmptyIntermediateRelation");

    public static void trust(SparkSession session) {
        synchronized (TRUSTED) {
            TRUSTED.add(session);
        }
    }

    static boolean trusts(SparkSession session) {
        synchronized (TRUSTED) {
            return TRUSTED.contains(session);
        }
    }

    @Override
    public BoxedUnit apply(SparkSessionExtensions extensions) {
        Functions.register(extensions);
        extensions.injectParser((session, parser) -> new GuardedParser(session, parser));
        extensions.injectCheckRule(session -> plan -> {
            if (!trusts(session)) {
                checkAnalysed(session, plan);
            }
            return BoxedUnit.UNIT;
        });
        return BoxedUnit.UNIT;
    }

    /** Throw Refusal for a statement that is no query, as it was parsed. */
    static void checkParsed(LogicalPlan plan) {
        visit(plan, false, null);
    }

    static void checkParsed(Expression expression) {
        checkExpression(expression, false, null);
    }

    private static void checkAnalysed(SparkSession session, LogicalPlan plan) {
        visit(plan, true, session);
    }

    private static void visit(QueryPlan<?> plan, boolean analysed, SparkSession session) {
        String name = plan.getClass().getSimpleName();
        if (plan instanceof CreateViewCommand view) {
            if (!view.viewType().toString().startsWith("LocalTempView")) {
                throw refused(name);
            }
        } else if (plan instanceof SetCommand set) {
            checkSetting(set);
        } else if (plan instanceof ExplainCommand explain) {
            visit(explain.logicalPlan(), false, null);
        } else if (plan instanceof ResetCommand reset) {
            checkReset(reset);
        } else if (plan instanceof DescribeRelation describe && describe.isExtended()
                || plan instanceof DescribeTableCommand shown && shown.isExtended()) {
            throw new Refusal("DESCRIBE EXTENDED is refused: it shows the server's files");
        } else if (plan instanceof Command) {
            if (!COMMANDS.contains(name)) {
                throw refused(name);
            }
        } else if (name.matches(FORBIDDEN_NODES)) {
            throw refused(name);
        } else if (analysed && !plan.children().iterator().hasNext()) {
            checkLeaf(plan, name, session);
        } else if (plan instanceof UnresolvedTableValuedFunction function) {
            Functions.check(CollectionConverters.asJava(function.name()));
        }
        for (Iterator<?> each = plan.children().iterator(); each.hasNext();) {
            visit((QueryPlan<?>) each.next(), analysed, session);
        }
        for (Iterator<?> each = plan.innerChildren().iterator(); each.hasNext();) {
            if (each.next() instanceof QueryPlan<?> inner && inner instanceof LogicalPlan) {
                visit(inner, analysed, session);
            }
        }
        for (Iterator<Expression> each = plan.expressions().iterator(); each.hasNext();) {
            checkExpression(each.next(), analysed, session);
        }
    }

    private static void checkExpression(Expression expression, boolean analysed, SparkSession session) {
        String name = expression.getClass().getSimpleName();
        if (expression instanceof UnresolvedFunction function) {
            Functions.check(CollectionConverters.asJava(function.nameParts()));
        } else if (expression instanceof UnresolvedGenerator generator) {
            Functions.check(CollectionConverters.asJava(generator.name().nameParts()));
        } else if (name.matches(FORBIDDEN_EXPRESSIONS)) {
            throw refused(name);
        } else if (expression instanceof AttributeReference column && column.metadata().contains(FILE_COLUMN)) {
            throw new Refusal("the column " + column.name() + " is refused: it shows the server's files");
        }
        if (expression instanceof SubqueryExpression subquery) {
            visit((QueryPlan<?>) subquery.plan(), analysed, session);
        }
        for (Iterator<?> each = expression.children().iterator(); each.hasNext();) {
            checkExpression((Expression) each.next(), analysed, session);
        }
    }

    private static void checkLeaf(QueryPlan<?> leaf, String name, SparkSession session) {
        if (leaf instanceof LogicalRelation relation && relation.relation() instanceof HadoopFsRelation files) {
            FileIndex index = files.location();
            if (index instanceof DeltaLogFileIndex) {
                return;
            }
            if (index instanceof TahoeLogFileIndex table) {
                // Looked up for what reads a table alone: a session whose `headrace.as_of` is wrong can still set another one.
                if (!Publications.shown(session).holds(table.path().toString(), table.version())) {
                    throw new Refusal(
                        "this query holds a table of another publication than the one that it is shown: make its temporary views "
                            + "again, by SQL");
                }
                return;
            }
        }
        if (!LEAVES.contains(name)) {
            throw refused(name);
        }
    }

    private static void checkSetting(SetCommand set) {
        Option<?> pair = set.kv();
        String key = pair.isEmpty() ? "" : (String) ((scala.Tuple2<?, ?>) pair.get())._1();
        if (!SETTINGS.contains(key)) {
            throw new Refusal("this setting is refused: a session may set " + String.join(", ", new java.util.TreeSet<>(SETTINGS)));
        }
    }

    private static void checkReset(ResetCommand reset) {
        if (reset.config().isEmpty() || !SETTINGS.contains(reset.config().get())) {
            throw new Refusal("RESET names one of " + String.join(", ", new java.util.TreeSet<>(SETTINGS)));
        }
    }

    private static Refusal refused(String what) {
        return new Refusal(
            "this is refused since it is no query of published tables (" + what + "): SELECT, SHOW, DESCRIBE, EXPLAIN, USE, "
                + "CREATE TEMPORARY VIEW and SET headrace.as_of can be run");
    }
}
