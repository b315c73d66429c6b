package io.debezium.pipeline.source.spi;

import java.util.Map;
import org.apache.kafka.connect.data.Struct;

/**
 * Takes the place of Debezium's class of this name, since our jar is ahead in the class path: that one makes a text of each event's
 * place and key for a figure that nobody reads here, in a fifth of the time of the thread that reads the log. It has to have all
 * methods of that one, which RecordJsonCheck.java checks.
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
