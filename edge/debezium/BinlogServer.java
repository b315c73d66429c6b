package headrace.debezium;

import com.fasterxml.jackson.databind.JsonNode;
import io.debezium.config.Configuration;
import io.debezium.jdbc.JdbcConnection;
import java.lang.reflect.InvocationTargetException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** What a MySQL or a MariaDB is like before Debezium reads from it: who it is, its settings, and what its binlog has at an offset. */
final class BinlogServer {
    private static final String SETTINGS = "show global variables where variable_name in ('server_uuid', 'server_id',"
            + " 'binlog_format', 'binlog_row_image', 'binlog_row_value_options', 'gtid_mode', 'gtid_executed', 'gtid_binlog_pos')";

    /** So many events of a transaction are passed over to see the next one's GTID. */
    private static final int EVENTS = 64;

    private BinlogServer() {}

    static Map<String, Object> look(Properties settings, JsonNode offset) throws SQLException, ReflectiveOperationException {
        try (JdbcConnection own = connect(settings);
                Statement statement = own.connection().createStatement()) {
            Map<String, String> variables = new LinkedHashMap<>();
            try (ResultSet rows = statement.executeQuery(SETTINGS)) {
                while (rows.next()) {
                    variables.put(rows.getString(1), rows.getString(2));
                }
            }
            String name = "";
            long size = 0;
            boolean hasFile = false;
            try (ResultSet rows = statement.executeQuery("show binary logs")) {
                while (rows.next()) {
                    name = rows.getString(1);
                    size = rows.getLong(2);
                    hasFile |= offset != null && name.equals(offset.get("file").asText());
                }
            }
            Map<String, Object> server = new LinkedHashMap<>();
            // MariaDB's own name for itself is another one in each container.
            server.put("system_identifier", variables.getOrDefault("server_uuid", "server_id " + variables.get("server_id")));
            server.put("log_end", Long.parseLong(name.substring(name.lastIndexOf('.') + 1)) << 32 | size);
            server.put("settings", variables);
            if (hasFile) {
                server.put("at_offset", events(own.connection(), offset, variables.containsKey("server_uuid")));
            }
            return server;
        }
    }

    /** Return Debezium's own connection: of the two connectors one alone is there, and neither is when this is compiled. */
    private static JdbcConnection connect(Properties settings) throws ReflectiveOperationException, SQLException {
        String name = settings.getProperty("connector.class").replaceFirst("\\.(\\w+)Connector$", ".jdbc.$1Connection");
        Object config = Class.forName(name + "Configuration")
                .getConstructor(Configuration.class)
                .newInstance(Configuration.from(settings));
        try {
            return (JdbcConnection) Class.forName(name).getConstructors()[0].newInstance(config, null);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw error;
        }
    }

    /** Return kind and text of the first events from an offset on, or MariaDB's GTIDs there; null where no event begins there. */
    private static List<List<String>> events(Connection connection, JsonNode offset, boolean isMysql) throws SQLException {
        String file = offset.get("file").asText();
        long pos = offset.get("pos").asLong();
        List<List<String>> found = new ArrayList<>();
        if (!isMysql) {
            try (PreparedStatement statement = connection.prepareStatement("select binlog_gtid_pos(?, ?)")) {
                statement.setString(1, file);
                statement.setLong(2, pos);
                try (ResultSet row = statement.executeQuery()) {
                    row.next();
                    return row.getString(1) == null ? null : List.of(List.of("Gtid_list", row.getString(1)));
                }
            }
        }
        // The name is one that the server has listed.
        String events = "show binlog events in '" + file.replace("'", "''") + "' from " + pos + " limit " + EVENTS;
        try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(events)) {
            while (rows.next()) {
                found.add(List.of(rows.getString(3), rows.getString(6)));
            }
            return found;
        } catch (SQLException error) {
            // ER_ERROR_WHEN_EXECUTING_COMMAND, of an offset that is none.
            if (error.getErrorCode() == 1220) {
                return null;
            }
            throw error;
        }
    }
}
