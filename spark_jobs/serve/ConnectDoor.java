package headrace.serve;

import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.UUID;
import org.apache.spark.connect.proto.ExecutePlanRequest;
import org.apache.spark.connect.proto.ExecutePlanResponse;
import org.apache.spark.connect.proto.ReleaseSessionRequest;
import org.apache.spark.connect.proto.UserContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connect.execution.ConnectProgressExecutionListener;
import org.apache.spark.sql.connect.service.ExecuteJobTag$;
import org.apache.spark.sql.connect.service.SessionHolder;
import org.apache.spark.sql.connect.service.SessionKey;
import org.apache.spark.sql.connect.service.SparkConnectInterceptorRegistry;
import org.apache.spark.sql.connect.service.SparkConnectService;
import org.apache.spark.sql.connect.service.SparkConnectService$;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.sparkproject.connect.google_protos.rpc.ErrorInfo;
import org.sparkproject.connect.grpc.ForwardingServerCall;
import org.sparkproject.connect.grpc.ForwardingServerCallListener;
import org.sparkproject.connect.grpc.Metadata;
import org.sparkproject.connect.grpc.Server;
import org.sparkproject.connect.grpc.ServerCall;
import org.sparkproject.connect.grpc.ServerCallHandler;
import org.sparkproject.connect.grpc.ServerInterceptor;
import org.sparkproject.connect.grpc.Status;
import org.sparkproject.connect.grpc.netty.GrpcSslContexts;
import org.sparkproject.connect.grpc.netty.NettyServerBuilder;
import org.sparkproject.connect.grpc.protobuf.StatusProto;
import org.sparkproject.connect.protobuf.Any;
import org.sparkproject.connect.protobuf.Descriptors.FieldDescriptor;
import org.sparkproject.connect.protobuf.InvalidProtocolBufferException;
import org.sparkproject.connect.protobuf.Message;
import scala.Option;

/**
 * What Spark Connect's clients come through: it knows the user by a token, gives each request that user's name, whatever name it
 * brought, refuses what is no query, and counts, limits and records what is executed.
 */
public final class ConnectDoor implements ServerInterceptor {
    private static final Logger LOG = LoggerFactory.getLogger(ConnectDoor.class);
    private static final Metadata.Key<String> AUTHORIZATION = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
    private static final int LARGEST_REQUEST = 16 * 1024 * 1024;
    private static volatile Queries queries;
    private static volatile Users users;

    /** Start to listen; return the port. `certificate` and `key` are PEM files, both empty for no TLS. */
    public static int start(
            SparkSession session, Queries counted, Users known, String host, int port, String certificate, String key)
            throws IOException {
        queries = counted;
        users = known;
        SparkConnectService$ service = SparkConnectService$.MODULE$;
        service.sessionManager().initializeBaseSession(session::newSession);
        NettyServerBuilder builder = NettyServerBuilder.forAddress(new InetSocketAddress(host, port))
            .maxInboundMessageSize(LARGEST_REQUEST)
            .addService(new SparkConnectService(false));
        SparkConnectInterceptorRegistry.chainInterceptors(builder);
        // The last one is the first to see a call.
        builder.intercept(new ConnectDoor());
        if (!certificate.isEmpty()) {
            builder.sslContext(GrpcSslContexts.forServer(new File(certificate), new File(key)).build());
        }
        ConnectProgressExecutionListener progress = new ConnectProgressExecutionListener();
        session.sparkContext().addSparkListener(progress);
        service.executionListener_$eq(Option.apply(progress));
        service.uiTab_$eq(Option.empty());
        service.listenerBus_$eq(session.sparkContext().listenerBus());
        Server server = builder.build().start();
        service.server_$eq(server);
        service.bindingAddress_$eq((InetSocketAddress) server.getListenSockets().get(0));
        return server.getPort();
    }

    @Override
    public <Q, A> ServerCall.Listener<Q> interceptCall(ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
        String method = call.getMethodDescriptor().getBareMethodName();
        String user;
        try {
            user = users.ofBearer(headers.get(AUTHORIZATION));
        } catch (Refusal refusal) {
            return closed(call, Status.PERMISSION_DENIED.withDescription(refusal.getMessage()));
        }
        if (user == null) {
            return closed(call, Status.UNAUTHENTICATED.withDescription("give a token that is valid"));
        }
        if (!ConnectRequests.METHODS.contains(method)) {
            return closed(call, Status.PERMISSION_DENIED.withDescription("this is refused since it is no query (" + method + ")"));
        }
        Counted<Q, A> counted = new Counted<>(call);
        ServerCall.Listener<Q> listener = next.startCall(counted, headers);
        return new ForwardingServerCallListener.SimpleForwardingServerCallListener<Q>(listener) {
            private boolean refused;

            @Override
            @SuppressWarnings("unchecked")
            public void onMessage(Q message) {
                try {
                    Message request = named((Message) message, user);
                    ConnectRequests.check(request);
                    if (request instanceof ExecutePlanRequest execute) {
                        begin(user, execute);
                    } else if (request instanceof ReleaseSessionRequest release) {
                        queries.endAllOf(user, release.getSessionId());
                    }
                    counted.operation = operation(user, request);
                    super.onMessage((Q) request);
                } catch (Refusal refusal) {
                    refused = true;
                    counted.close(Status.PERMISSION_DENIED.withDescription(refusal.getMessage()), new Metadata());
                } catch (RuntimeException | StackOverflowError unexpected) {
                    // Of input that nobody expected neither text nor place is for its sender.
                    refused = true;
                    counted.close(Status.INVALID_ARGUMENT.withDescription("the request cannot be read"), new Metadata());
                }
            }

            @Override
            public void onHalfClose() {
                if (refused) {
                    return;
                }
                // A look at a plan is answered in this very thread.
                Publications.beginAnalysis("analysis " + UUID.randomUUID());
                try {
                    super.onHalfClose();
                } finally {
                    Publications.endAnalysis();
                }
            }
        };
    }

    /** Counts the rows of answers, and sees the end of an operation. */
    private static final class Counted<Q, A> extends ForwardingServerCall.SimpleForwardingServerCall<Q, A> {
        private volatile String operation;
        private boolean closed;

        private Counted(ServerCall<Q, A> call) {
            super(call);
        }

        @Override
        public void sendMessage(A message) {
            if (closed) {
                return;
            }
            if (operation != null && message instanceof ExecutePlanResponse answer) {
                try {
                    if (answer.hasArrowBatch()) {
                        queries.count(operation, answer.getArrowBatch().getRowCount());
                    }
                } catch (Refusal refusal) {
                    cancel(operation);
                    queries.end(operation, "refused");
                    close(Status.RESOURCE_EXHAUSTED.withDescription(refusal.getMessage()), new Metadata());
                    return;
                }
                if (answer.hasResultComplete()) {
                    queries.end(operation, "done");
                }
            }
            super.sendMessage(message);
        }

        @Override
        public void close(Status status, Metadata trailers) {
            if (closed) {
                return;
            }
            closed = true;
            Status said = status;
            Metadata details = trailers;
            String missing = null;
            try {
                missing = operation == null || status.isOk() ? null : Publications.explainMissing(failure(operation, status, trailers));
            } catch (RuntimeException unexplained) {
                // The client has what Spark made of it; whatever happens here, its call has to end.
                LOG.warn("a failed query is not explained: {}", unexplained.getClass().getName());
            }
            if (missing != null) {
                said = Status.NOT_FOUND.withDescription(missing);
                // Spark's own words, of which clients make the error.
                details = new Metadata();
            }
            if (operation != null && !status.isOk()) {
                if (queries.isLate(operation)) {
                    said = Status.DEADLINE_EXCEEDED.withDescription(queries.late().getMessage());
                }
                queries.end(operation, "failed");
            }
            super.close(said, details);
        }
    }

    private static void begin(String user, ExecutePlanRequest request) {
        UUID.fromString(request.getSessionId());
        UUID.fromString(request.getOperationId());
        String operation = operation(user, request);
        String tag = ExecuteJobTag$.MODULE$.apply(user, request.getSessionId(), request.getOperationId());
        Queries.Query query = queries.begin(user, "connect", request.getSessionId(), text(request));
        try {
            queries.named(query, operation, tag, () -> cancel(operation));
        } catch (Refusal refusal) {
            queries.end(query, "refused");
            throw refusal;
        }
    }

    private static String text(ExecutePlanRequest request) {
        if (request.getPlan().hasCommand() && request.getPlan().getCommand().hasSqlCommand()) {
            var command = request.getPlan().getCommand().getSqlCommand();
            return command.hasInput() && command.getInput().hasSql() ? command.getInput().getSql().getQuery() : command.getSql();
        }
        if (request.getPlan().getRoot().hasSql()) {
            return request.getPlan().getRoot().getSql().getQuery();
        }
        return ConnectRequests.summary(request.getPlan());
    }

    /** Return what the operation of a request is known by: user, session and operation, so that no user names another's. */
    private static String operation(String user, Message request) {
        FieldDescriptor operation = request.getDescriptorForType().findFieldByName("operation_id");
        FieldDescriptor session = request.getDescriptorForType().findFieldByName("session_id");
        boolean streams = request.getDescriptorForType().getName().matches("ExecutePlanRequest|ReattachExecuteRequest");
        return operation == null || !streams
            ? null
            : "connect " + user + " " + request.getField(session) + " " + request.getField(operation);
    }

    private static void cancel(String operation) {
        String[] parts = operation.split(" ");
        Option<SessionHolder> session =
            SparkConnectService$.MODULE$.sessionManager().getIsolatedSessionIfPresent(new SessionKey(parts[1], parts[2]));
        if (session.isDefined()) {
            session.get().interruptOperation(parts[3]);
        }
    }

    /** Return what an operation failed with, as Spark keeps it for clients that ask for details; null where it does not. */
    private static Throwable failure(String operation, Status status, Metadata trailers) {
        String[] parts = operation.split(" ");
        if (parts.length < 4) {
            // A request that names no session or no operation.
            return null;
        }
        Option<SessionHolder> session =
            SparkConnectService$.MODULE$.sessionManager().getIsolatedSessionIfPresent(new SessionKey(parts[1], parts[2]));
        try {
            for (Any detail : StatusProto.fromStatusAndTrailers(status, trailers).getDetailsList()) {
                if (session.isDefined() && detail.is(ErrorInfo.class)) {
                    String id = detail.unpack(ErrorInfo.class).getMetadataOrDefault("errorId", "");
                    return (Throwable) session.get().errorIdToError().getIfPresent(id);
                }
            }
        } catch (InvalidProtocolBufferException unreadable) {
            // The client has what Spark made of it.
            return null;
        }
        return null;
    }

    private static Message named(Message request, String user) {
        FieldDescriptor context = request.getDescriptorForType().findFieldByName("user_context");
        Message.Builder builder = request.toBuilder();
        builder.setField(context, UserContext.newBuilder().setUserId(user).setUserName(user).build());
        if (request instanceof ExecutePlanRequest execute && !execute.hasOperationId()) {
            ((ExecutePlanRequest.Builder) builder).setOperationId(UUID.randomUUID().toString());
        }
        return builder.build();
    }

    private static <Q, A> ServerCall.Listener<Q> closed(ServerCall<Q, A> call, Status status) {
        call.close(status, new Metadata());
        return new ServerCall.Listener<Q>() {};
    }
}
