package headrace.serve;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/** Spark's parser, which refuses statements of served sessions that are no queries. */
final class GuardedParser implements ParserInterface {
    private final SparkSession session;
    private final ParserInterface parser;

    GuardedParser(SparkSession session, ParserInterface parser) {
        this.session = session;
        this.parser = parser;
    }

    @Override
    public LogicalPlan parsePlan(String text) throws ParseException {
        return checked(parser.parsePlan(text));
    }

    @Override
    public LogicalPlan parsePlanWithParameters(String text, ParameterContext parameters) throws ParseException {
        return checked(parser.parsePlanWithParameters(text, parameters));
    }

    @Override
    public LogicalPlan parseQuery(String text) throws ParseException {
        return checked(parser.parseQuery(text));
    }

    @Override
    public Expression parseExpression(String text) throws ParseException {
        Expression expression = parser.parseExpression(text);
        if (!Guard.trusts(session)) {
            Guard.checkParsed(expression);
        }
        return expression;
    }

    @Override
    public TableIdentifier parseTableIdentifier(String text) throws ParseException {
        return parser.parseTableIdentifier(text);
    }

    @Override
    public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException {
        return parser.parseFunctionIdentifier(text);
    }

    @Override
    public Seq<String> parseMultipartIdentifier(String text) throws ParseException {
        return parser.parseMultipartIdentifier(text);
    }

    @Override
    public StructType parseTableSchema(String text) throws ParseException {
        return parser.parseTableSchema(text);
    }

    @Override
    public StructType parseRoutineParam(String text) throws ParseException {
        return parser.parseRoutineParam(text);
    }

    @Override
    public DataType parseDataType(String text) throws ParseException {
        return parser.parseDataType(text);
    }

    private LogicalPlan checked(LogicalPlan plan) {
        if (!Guard.trusts(session)) {
            Guard.checkParsed(plan);
        }
        return plan;
    }
}
