package headrace.serve;

/** What a client asked for is not done; the message is for the client. */
public final class Refusal extends RuntimeException {
    public Refusal(String message) {
        super(message, null, false, false);
    }
}
