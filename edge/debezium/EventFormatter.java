package io.debezium.pipeline.source.spi;

import java.util.Map;
import org.apache.kafka.connect.data.Struct;

/**
 * In the place of Debezium's class of this name, behind it in the class path, which makes a text of each event's place and key for a
 * figure that nobody reads here. That took a fifth of the time of the thread that reads the log.
 */
class EventFormatter {
    public EventFormatter sourcePosition(Map<String, String> position) {
        return this;
    }

    public EventFormatter key(Object key) {
        return this;
    }

    public EventFormatter value(Struct value) {
        return this;
    }

    @Override
    public String toString() {
        return "";
    }
}
