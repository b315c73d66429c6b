package headrace.serve;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hive.service.cli.CLIService;
import org.apache.hive.service.cli.FetchOrientation;
import org.apache.hive.service.cli.FetchType;
import org.apache.hive.service.cli.GetInfoType;
import org.apache.hive.service.cli.GetInfoValue;
import org.apache.hive.service.cli.HiveSQLException;
import org.apache.hive.service.cli.OperationHandle;
import org.apache.hive.service.cli.OperationStatus;
import org.apache.hive.service.cli.SessionHandle;
import org.apache.hive.service.cli.session.SessionManager;
import org.apache.hive.service.cli.thrift.ThriftBinaryCLIService;
import org.apache.hive.service.rpc.thrift.TProtocolVersion;
import org.apache.hive.service.rpc.thrift.TRowSet;
import org.apache.hive.service.rpc.thrift.TTableSchema;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.hive.thriftserver.HiveThriftServer2$;
import org.apache.spark.sql.hive.thriftserver.SparkSQLCLIService;
import org.apache.spark.sql.hive.thriftserver.ui.HiveThriftServer2EventManager;

/**
 * What JDBC and ODBC clients come through: in front of Spark's Thrift service, each statement is counted, limited and recorded.
 *
 * Of what a client sets when it connects only the database and `headrace.as_of` are taken: Hive's service would let it set
 * properties of the JVM.
 */
public final class ThriftDoor extends CLIService {
    /** Columns of JDBC's lists of keys, of which there are none. */
    private static final String PRIMARY_KEYS = "TABLE_CAT TABLE_SCHEM TABLE_NAME COLUMN_NAME KEY_SEQ PK_NAME";
    private static final String CROSS_REFERENCES = "PKTABLE_CAT PKTABLE_SCHEM PKTABLE_NAME PKCOLUMN_NAME FKTABLE_CAT FKTABLE_SCHEM "
        + "FKTABLE_NAME FKCOLUMN_NAME KEY_SEQ UPDATE_RULE DELETE_RULE FK_NAME PK_NAME DEFERRABILITY";

    private final Queries queries;
    private final Users users;
    /** Spark's own, which finds its fields by its place in a tree of classes: it has no heirs. */
    private final SparkSQLCLIService inner;

    private ThriftDoor(SparkSQLCLIService inner, Queries queries, Users users) {
        super(null);
        this.inner = inner;
        this.queries = queries;
        this.users = users;
    }

    /** Start to listen; `settings` are Hive's own, by their names. */
    public static void start(SparkSession session, Queries queries, Users users, Map<String, String> settings) {
        HiveThriftServer2$.MODULE$.eventManager_$eq(new HiveThriftServer2EventManager(session.sparkContext()));
        HiveConf conf = new HiveConf();
        settings.forEach(conf::set);
        // Hive takes the class of passwords from a configuration that it makes anew, which reads properties of the JVM alone.
        String passwords = settings.get(HiveConf.ConfVars.HIVE_SERVER2_CUSTOM_AUTHENTICATION_CLASS.varname);
        if (passwords != null) {
            System.setProperty(HiveConf.ConfVars.HIVE_SERVER2_CUSTOM_AUTHENTICATION_CLASS.varname, passwords);
        }
        SparkSQLCLIService inner = new SparkSQLCLIService(null, session);
        inner.init(conf);
        inner.start();
        ThriftBinaryCLIService service = new ThriftBinaryCLIService(new ThriftDoor(inner, queries, users));
        service.init(conf);
        service.start();
    }

    @Override
    public synchronized HiveConf getHiveConf() {
        return inner.getHiveConf();
    }

    @Override
    public SessionManager getSessionManager() {
        return inner.getSessionManager();
    }

    @Override
    public SessionHandle openSession(
            TProtocolVersion protocol, String user, String password, String address, Map<String, String> settings)
            throws HiveSQLException {
        return inner.openSession(protocol, user, password, address, taken(settings));
    }

    @Override
    public SessionHandle openSessionWithImpersonation(
            TProtocolVersion protocol, String user, String password, String address, Map<String, String> settings, String token)
            throws HiveSQLException {
        throw new HiveSQLException("a session of another user is refused");
    }

    @Override
    public OperationHandle executeStatement(SessionHandle session, String statement, Map<String, String> settings, long seconds)
            throws HiveSQLException {
        // It runs whole in this thread: one that fails has no operation that would end.
        return run(session, statement, () -> {
            Publications.beginAnalysis("statement " + UUID.randomUUID());
            try {
                return inner.executeStatement(session, statement, new HashMap<>(), queries.within(seconds));
            } finally {
                Publications.endAnalysis();
            }
        });
    }

    @Override
    public OperationHandle executeStatementAsync(
            SessionHandle session, String statement, Map<String, String> settings, long seconds) throws HiveSQLException {
        return run(session, statement, () -> inner.executeStatementAsync(session, statement, new HashMap<>(), queries.within(seconds)));
    }

    @Override
    public TRowSet fetchResults(OperationHandle operation, FetchOrientation orientation, long most, FetchType type)
            throws HiveSQLException {
        String id = name(operation);
        try {
            TRowSet rows = inner.fetchResults(operation, orientation, most, type);
            if (type == FetchType.QUERY_OUTPUT) {
                queries.count(id, rowsIn(rows));
            }
            return rows;
        } catch (Refusal refusal) {
            queries.end(id, "refused");
            inner.cancelOperation(operation);
            throw new HiveSQLException(refusal.getMessage());
        } catch (Exception failed) {
            // Logs of operations, which some clients ask for while the query runs, are not kept.
            if (type == FetchType.QUERY_OUTPUT) {
                queries.end(id, "failed");
            }
            throw explained(failed);
        }
    }

    @Override
    public void closeOperation(OperationHandle operation) throws HiveSQLException {
        queries.end(name(operation), "done");
        inner.closeOperation(operation);
    }

    @Override
    public void cancelOperation(OperationHandle operation) throws HiveSQLException {
        queries.end(name(operation), "cancelled");
        inner.cancelOperation(operation);
    }

    @Override
    public void closeSession(SessionHandle session) throws HiveSQLException {
        queries.endAllOf(null, session.getSessionId().toString());
        inner.closeSession(session);
    }

    @Override
    public GetInfoValue getInfo(SessionHandle session, GetInfoType type) throws HiveSQLException {
        return inner.getInfo(session, type);
    }

    @Override
    public OperationHandle getTypeInfo(SessionHandle session) throws HiveSQLException {
        checkUser(session);
        return inner.getTypeInfo(session);
    }

    @Override
    public OperationHandle getCatalogs(SessionHandle session) throws HiveSQLException {
        checkUser(session);
        return inner.getCatalogs(session);
    }

    @Override
    public OperationHandle getSchemas(SessionHandle session, String catalog, String schema) throws HiveSQLException {
        checkUser(session);
        return inner.getSchemas(session, catalog, schema);
    }

    @Override
    public OperationHandle getTables(SessionHandle session, String catalog, String schema, String table, List<String> types)
            throws HiveSQLException {
        checkUser(session);
        return inner.getTables(session, catalog, schema, table, types);
    }

    @Override
    public OperationHandle getTableTypes(SessionHandle session) throws HiveSQLException {
        checkUser(session);
        return inner.getTableTypes(session);
    }

    @Override
    public OperationHandle getColumns(SessionHandle session, String catalog, String schema, String table, String column)
            throws HiveSQLException {
        checkUser(session);
        return inner.getColumns(session, catalog, schema, table, column);
    }

    @Override
    public OperationHandle getFunctions(SessionHandle session, String catalog, String schema, String function)
            throws HiveSQLException {
        checkUser(session);
        return inner.getFunctions(session, catalog, schema, function);
    }

    @Override
    public OperationHandle getPrimaryKeys(SessionHandle session, String catalog, String schema, String table)
            throws HiveSQLException {
        return empty(session, PRIMARY_KEYS);
    }

    @Override
    public OperationHandle getCrossReference(
            SessionHandle session, String catalog, String schema, String table, String otherCatalog, String otherSchema,
            String otherTable) throws HiveSQLException {
        return empty(session, CROSS_REFERENCES);
    }

    @Override
    public OperationStatus getOperationStatus(OperationHandle operation) throws HiveSQLException {
        OperationStatus status = inner.getOperationStatus(operation);
        HiveSQLException failed = status.getOperationException();
        return failed == null ? status : new OperationStatus(status.getState(), explained(failed));
    }

    @Override
    public TTableSchema getResultSetMetadata(OperationHandle operation) throws HiveSQLException {
        return inner.getResultSetMetadata(operation);
    }

    private interface Start {
        OperationHandle operation() throws HiveSQLException;
    }

    private OperationHandle run(SessionHandle session, String statement, Start start) throws HiveSQLException {
        String user = checkUser(session);
        Queries.Query query;
        try {
            query = queries.begin(user, "thrift", session.getSessionId().toString(), statement);
        } catch (Refusal refusal) {
            throw new HiveSQLException(refusal.getMessage());
        }
        try {
            OperationHandle operation = start.operation();
            // Spark has the public part of the handle for the name of its jobs' group.
            String group = operation.getHandleIdentifier().getPublicId().toString();
            queries.named(query, name(operation), group, () -> cancelLate(operation));
            return operation;
        } catch (Exception failed) {
            queries.end(query, "failed");
            throw explained(failed);
        }
    }

    /** Return a failure with the reason where that is a refusal, or a file that is gone, without Spark's words. */
    private static HiveSQLException explained(Exception failed) {
        for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
            if (cause instanceof Refusal) {
                return withoutPlace(cause.getMessage());
            }
        }
        String missing = Publications.explainMissing(failed);
        if (missing != null) {
            return withoutPlace(missing);
        }
        return failed instanceof HiveSQLException known ? known : new HiveSQLException(failed);
    }

    /** Return a failure that is its reason alone: Hive sends where it was thrown as well. */
    private static HiveSQLException withoutPlace(String reason) {
        HiveSQLException failure = new HiveSQLException(reason);
        failure.setStackTrace(new StackTraceElement[0]);
        return failure;
    }

    private String checkUser(SessionHandle session) throws HiveSQLException {
        String user = getSessionManager().getSession(session).getUserName();
        if (!users.isStill(user)) {
            throw new HiveSQLException("the token of this session's user is not valid any more");
        }
        return user;
    }

    /** Answer with these columns and no rows: Hive's own answer needs a metastore. */
    private OperationHandle empty(SessionHandle session, String columns) throws HiveSQLException {
        checkUser(session);
        String list = Stream.of(columns.split(" ")).map(each -> "'' AS " + each).collect(Collectors.joining(", "));
        return inner.executeStatement(session, "SELECT " + list + " LIMIT 0", new HashMap<>());
    }

    private void cancelLate(OperationHandle operation) {
        try {
            inner.cancelOperation(operation);
            inner.closeOperation(operation);
        } catch (HiveSQLException gone) {
            // The client has closed it meanwhile.
            return;
        }
    }

    private static String name(OperationHandle operation) {
        return "thrift " + operation.getHandleIdentifier().getPublicId();
    }

    private static int rowsIn(TRowSet rows) {
        if (rows.isSetBinaryColumns()) {
            throw new Refusal("the client's protocol is too new for this server");
        }
        if (rows.getColumns() == null || rows.getColumns().isEmpty()) {
            return rows.getRowsSize();
        }
        Object values = rows.getColumns().get(0).getFieldValue();
        try {
            return ((List<?>) values.getClass().getMethod("getValues").invoke(values)).size();
        } catch (ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static Map<String, String> taken(Map<String, String> settings) {
        Map<String, String> taken = new HashMap<>();
        if (settings == null) {
            return taken;
        }
        String database = settings.get("use:database");
        if (database != null && database.matches("[A-Za-z0-9_]+")) {
            taken.put("use:database", database);
        }
        String asOf = settings.get("set:hiveconf:" + Publications.AS_OF);
        if (asOf != null && !asOf.contains("${")) {
            taken.put("set:hiveconf:" + Publications.AS_OF, asOf);
        }
        return taken;
    }
}
