package headrace.debezium;

import io.debezium.config.Configuration;
import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.connector.postgresql.connection.PostgresConnection;
import io.debezium.jdbc.JdbcConfiguration;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Map;

/** What a PostgreSQL is like before Debezium reads from it. */
final class PostgresServer {
    /** Where the log ends, and whether the slot is there. */
    private static final String LOOK =
            "select case when pg_is_in_recovery() then greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())"
                    + " else pg_current_wal_lsn() end - '0/0'::pg_lsn,"
                    + " exists (select from pg_replication_slots where slot_name = ?)";

    private PostgresServer() {}

    static Map<String, Object> look(Configuration settings) throws SQLException {
        PostgresConnectorConfig config = new PostgresConnectorConfig(settings);
        // As Debezium's own: of the rights that it needs anyway, this one has the server's identity.
        JdbcConfiguration replication = JdbcConfiguration.adapt(config.getJdbcConfig()
                .edit()
                .with("assumeMinServerVersion", "9.4")
                .with("replication", "database")
                .with("preferQueryMode", "simple")
                .build());
        try (PostgresConnection connection = new PostgresConnection(replication, "Headrace");
                Statement statement = connection.connection().createStatement();
                PreparedStatement look = connection.connection().prepareStatement(LOOK)) {
            // In the role's own path anybody may have made functions and operators that fit better, which would have its rights.
            statement.execute("set search_path = pg_catalog");
            String system;
            try (ResultSet row = statement.executeQuery("IDENTIFY_SYSTEM")) {
                row.next();
                system = row.getString(1);
            }
            look.setString(1, config.slotName());
            try (ResultSet row = look.executeQuery()) {
                row.next();
                return Map.of(
                        "system_identifier", system,
                        "log_end", row.getBigDecimal(1).longValue(),
                        "has_slot", row.getBoolean(2));
            }
        }
    }
}
