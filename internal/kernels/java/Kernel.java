// The Java kernel: runs the guest's requests in one lasting JShell, whose snippets
// run in this process. JDK 11 or newer. The launcher compiles it from descriptor 5,
// in memory. The protocol is described in the documentation of the Go package.

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.DeclarationSnippet;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.TypeDeclSnippet;
import jdk.jshell.UnresolvedReferenceException;
import jdk.jshell.execution.LocalExecutionControlProvider;

public class Kernel {
    static final int MAX_PART = 32 << 10;
    static final int MAX_TEXT = 1 << 20; // characters of one text in a result
    static final int MAX_TRACEBACK = 64 << 10;
    static final int MAX_FRAMES = 50;
    static final int MAX_SNIPPETS = 2000; // whose lines errors can name
    static final Pattern MAIN = Pattern.compile("\\bstatic\\s+(final\\s+)?void\\s+main\\s*\\(\\s*(final\\s+)?String\\b");
    static final String[] IMPORTS = {
        "java.io.*", "java.math.*", "java.net.*", "java.nio.file.*", "java.time.*", "java.util.*",
        "java.util.concurrent.*", "java.util.function.*", "java.util.regex.*", "java.util.stream.*",
    };

    private final DataInputStream requests;
    private final OutputStream events;
    private final PrintStream out, err;
    private final byte[] key;
    private final Set<String> own = System.getProperties().stringPropertyNames(); // properties of Java's
    private JShell shell;
    private volatile Run run; // under way
    private final Object turn = new Object(); // held while a run is stopped, and while it ends
    // The place of a snippet: its cell, and the lines before it.
    private final Map<String, Place> places = new LinkedHashMap<>();

    private static class Run {
        int id;
        boolean answers;
        String[] lines;
        volatile boolean stopped;
    }

    private static class Place {
        Run run;
        int line; // of the cell's, before the snippet
    }

    // A Failure is what ended a run.
    private static class Failure {
        String name, value, traceback;
        int line;
    }

    public static void main(String[] args) throws Exception {
        new Kernel().serve();
    }

    private Kernel() throws IOException {
        requests = new DataInputStream(new FileInputStream("/proc/self/fd/3"));
        events = new FileOutputStream("/proc/self/fd/4");
        out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        err = new PrintStream(new FileOutputStream(FileDescriptor.err), true, StandardCharsets.UTF_8);
        key = receive().get("key").getBytes(StandardCharsets.US_ASCII);
    }

    private void serve() throws Exception {
        heal();
        for (Map.Entry<String, String> e : System.getenv().entrySet()) {
            property(e.getKey(), e.getValue());
        }
        shell = JShell.builder().executionEngine(new LocalExecutionControlProvider(), Map.of()).build();
        for (String name : IMPORTS) {
            shell.eval("import " + name + ";");
        }
        onInterrupt();
        Map<String, Object> ready = new LinkedHashMap<>();
        ready.put("ev", "ready");
        ready.put("language", "java");
        ready.put("version", System.getProperty("java.version"));
        send(ready);
        while (true) {
            Map<String, String> request = receive();
            switch (request.get("op")) {
                case "run": execute(request); break;
                case "prepare": send(event("prepared")); break;
                case "ping": send(event("pong")); break;
                default:
            }
        }
    }

    // Requests: names and values in turn, each after its length.

    private Map<String, String> receive() throws IOException {
        byte[] body;
        try {
            body = new byte[requests.readInt()];
            requests.readFully(body);
        } catch (EOFException e) {
            Runtime.getRuntime().halt(0); // the guest is gone
            return null;
        }
        Map<String, String> fields = new LinkedHashMap<>();
        int at = 0;
        while (at < body.length) {
            String[] pair = new String[2];
            for (int i = 0; i < 2; i++) {
                int n = java.nio.ByteBuffer.wrap(body, at, 4).getInt();
                pair[i] = new String(body, at + 4, n, StandardCharsets.UTF_8);
                at += 4 + n;
            }
            fields.put(pair[0], pair[1]);
        }
        return fields;
    }

    // Events: JSON.

    private static Map<String, Object> event(String ev) {
        Map<String, Object> m = new LinkedHashMap<>();
        m.put("ev", ev);
        return m;
    }

    private Map<String, Object> event(String ev, Run r) {
        Map<String, Object> m = event(ev);
        m.put("id", r.id);
        return m;
    }

    private synchronized void send(Map<String, Object> event) throws IOException {
        out.flush();
        err.flush();
        StringBuilder text = new StringBuilder();
        json(text, event);
        byte[] data = text.toString().getBytes(StandardCharsets.UTF_8);
        for (int at = 0; at < data.length; at += MAX_PART) {
            int n = Math.min(MAX_PART, data.length - at);
            ByteArrayOutputStream message = new ByteArrayOutputStream(n + 64);
            message.write(java.nio.ByteBuffer.allocate(4).putInt(key.length + 1 + n).array());
            message.write(key);
            message.write(at + n < data.length ? '+' : '.');
            message.write(data, at, n);
            events.write(message.toByteArray());
        }
    }

    private static void json(StringBuilder b, Object value) {
        if (value instanceof Map) {
            char before = '{';
            for (Map.Entry<?, ?> e : ((Map<?, ?>) value).entrySet()) {
                b.append(before);
                json(b, e.getKey());
                b.append(':');
                json(b, e.getValue());
                before = ',';
            }
            b.append(before == '{' ? "{}" : "}");
        } else if (value instanceof String) {
            b.append('"');
            for (char c : ((String) value).toCharArray()) {
                if (c == '"' || c == '\\') {
                    b.append('\\').append(c);
                } else if (c < ' ' || c == 127 || Character.isSurrogate(c)) {
                    b.append(String.format("\\u%04x", (int) c));
                } else {
                    b.append(c);
                }
            }
            b.append('"');
        } else {
            b.append(value);
        }
    }

    private static String shortened(String text, int most) {
        if (text.length() <= most) {
            return text;
        }
        return text.substring(0, most) + "\n... (" + (text.length() - most) + " more characters)";
    }

    // Streams and signals.

    // Input asks for a line of input when user code reads System.in.
    private class Input extends InputStream {
        private byte[] line = new byte[0];
        private int at;

        @Override
        public synchronized int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public synchronized int read(byte[] b, int off, int len) throws IOException {
            if (len == 0) {
                return 0;
            }
            if (at == line.length) {
                String answer = ask();
                if (answer == null) {
                    return -1;
                }
                line = answer.getBytes(StandardCharsets.UTF_8);
                at = 0;
            }
            int n = Math.min(len, line.length - at);
            System.arraycopy(line, at, b, off, n);
            at += n;
            return n;
        }
    }

    // ask returns a line of input, or null at its end.
    private String ask() throws IOException {
        Run r = run;
        if (r == null) {
            throw new IOException("no run can be asked for input");
        }
        if (!r.answers) {
            throw new IOException("input needs an answer, but nobody can answer in this run: pass the value in the code instead");
        }
        Map<String, Object> e = event("input", r);
        e.put("prompt", "");
        e.put("password", false);
        send(e);
        while (true) {
            try {
                while (requests.available() == 0) {
                    if (r.stopped) {
                        throw new IOException("the run was interrupted");
                    }
                    Thread.sleep(20); // a read could not be interrupted
                }
            } catch (InterruptedException stop) {
                throw new IOException("the run was interrupted");
            }
            Map<String, String> answer = receive();
            if ("input".equals(answer.get("op")) && String.valueOf(r.id).equals(answer.get("id"))) {
                if ("1".equals(answer.get("eof"))) {
                    return null;
                }
                String text = answer.get("text");
                return text.endsWith("\n") ? text : text + "\n";
            }
        }
    }

    // heal makes the standard streams the kernel's again.
    private void heal() {
        System.setIn(new Input());
        System.setOut(out);
        System.setErr(err);
    }

    // onInterrupt stops the run at a SIGINT. Reflection spares a warning of the
    // compiler about a class that is not part of Java's API.
    private void onInterrupt() throws ReflectiveOperationException {
        Class<?> signal = Class.forName("sun.misc.Signal"), handler = Class.forName("sun.misc.SignalHandler");
        Object stop = Proxy.newProxyInstance(handler.getClassLoader(), new Class<?>[] {handler}, (self, method, args) -> {
            if (!method.getName().equals("handle")) {
                return method.getName().equals("hashCode") ? (Object) 0 : method.getName().equals("equals") ? self == args[0] : "stop";
            }
            Run r = run;
            if (r == null) {
                return null;
            }
            r.stopped = true;
            // Until the run has ended: between snippets there is nothing to stop.
            while (true) {
                synchronized (turn) {
                    if (run != r) {
                        return null;
                    }
                    shell.stop();
                }
                Thread.sleep(50);
            }
        });
        signal.getMethod("handle", signal, handler).invoke(null, signal.getConstructor(String.class).newInstance("INT"), stop);
    }

    // environment returns the map behind System.getenv, which programs get too.
    @SuppressWarnings("unchecked")
    private static Map<String, String> environment() throws ReflectiveOperationException {
        Field m = System.getenv().getClass().getDeclaredField("m");
        m.setAccessible(true);
        return (Map<String, String>) m.get(System.getenv());
    }

    private static void set(Map<String, String> env, String name, String value) {
        if (value == null) {
            env.remove(name);
        } else {
            env.put(name, value);
        }
    }

    // property makes a variable of the environment a property, too: E2B's interpreter has
    // variables only there. Java's own properties stay.
    private void property(String name, String value) {
        if (name.isEmpty() || own.contains(name)) {
            return;
        }
        if (value == null) {
            System.clearProperty(name);
        } else {
            System.setProperty(name, value);
        }
    }

    // Runs.

    private void execute(Map<String, String> request) throws Exception {
        Run r = new Run();
        r.id = Integer.parseInt(request.get("id"));
        r.answers = "1".equals(request.get("stdin"));
        String code = request.get("code");
        r.lines = code.split("\n", -1);
        Map<String, String> before = new HashMap<>(), properties = new HashMap<>();
        for (Map.Entry<String, String> e : request.entrySet()) {
            String name = e.getKey();
            if (name.startsWith("base ")) {
                set(environment(), name.substring(5), e.getValue());
                property(name.substring(5), e.getValue());
            } else if (name.startsWith("env ")) {
                before.put(name.substring(4), System.getenv(name.substring(4)));
                set(environment(), name.substring(4), e.getValue());
                properties.put(name.substring(4), System.getProperty(name.substring(4)));
                property(name.substring(4), e.getValue());
            }
        }
        run = r;
        Map<String, Object> end = event("end", r);
        Failure failure;
        try {
            failure = evaluate(r, code, end);
        } catch (StackOverflowError | OutOfMemoryError | RuntimeException e) { // of the compiler, by odd code
            failure = new Failure();
            failure.name = e.getClass().getName();
            failure.value = String.valueOf(e.getMessage());
            failure.traceback = failure.name + ": " + failure.value;
        }
        synchronized (turn) {
            run = null;
        }
        heal();
        if (r.stopped) {
            Failure stopped = new Failure();
            stopped.name = "Interrupted";
            stopped.value = "the run was interrupted";
            stopped.traceback = stopped.name + ": " + stopped.value;
            stopped.line = failure == null ? 0 : failure.line;
            failure = stopped;
        }
        end.put("status", r.stopped ? "interrupted" : failure != null ? "error" : "ok");
        if (failure != null) {
            Map<String, Object> e = event("error", r);
            e.put("name", shortened(failure.name, 200));
            e.put("value", shortened(failure.value, MAX_TRACEBACK));
            e.put("traceback", shortened(failure.traceback, MAX_TRACEBACK));
            e.put("line", failure.line);
            e.put("text", failure.line > 0 && failure.line <= r.lines.length ? shortened(r.lines[failure.line - 1], 1000) : "");
            send(e);
        }
        for (Map.Entry<String, String> e : before.entrySet()) {
            set(environment(), e.getKey(), e.getValue());
            property(e.getKey(), properties.get(e.getKey()));
        }
        send(end);
    }

    // evaluate runs a cell. One that is a program, only types of which the first has
    // a method main, is run as the java command would.
    private Failure evaluate(Run r, String code, Map<String, Object> end) {
        List<Snippet> made = new ArrayList<>();
        Failure f = snippets(r, code, end, made);
        if (f != null || r.stopped) {
            return f;
        }
        TypeDeclSnippet first = null;
        for (Snippet s : made) {
            if (s.kind() != Snippet.Kind.TYPE_DECL && s.kind() != Snippet.Kind.IMPORT) {
                return null;
            }
            if (first == null && s.kind() == Snippet.Kind.TYPE_DECL) {
                first = (TypeDeclSnippet) s;
            }
        }
        if (first == null || !MAIN.matcher(first.source()).find()) {
            return null;
        }
        for (SnippetEvent e : shell.eval(first.name() + ".main(new String[0]);")) {
            if (e.causeSnippet() == null && e.exception() != null) {
                return thrown(e.exception(), r);
            }
        }
        return null;
    }

    // snippets runs the snippets of a cell. It adds the value of the last one to the
    // end, if that is an expression without a semicolon.
    private Failure snippets(Run r, String code, Map<String, Object> end, List<Snippet> made) {
        SourceCodeAnalysis analysis = shell.sourceCodeAnalysis();
        String rest = code.stripLeading();
        while (!rest.isBlank() && !r.stopped) {
            SourceCodeAnalysis.CompletionInfo info = analysis.analyzeCompletion(rest);
            String source = info.completeness().isComplete() ? info.source() : rest;
            String after = info.completeness().isComplete() ? info.remaining() : "";
            int line = (int) code.substring(0, code.length() - rest.length()).chars().filter(c -> c == '\n').count();
            Place place = new Place();
            place.run = r;
            place.line = line;
            for (SnippetEvent e : shell.eval(source)) {
                if (e.causeSnippet() != null) {
                    continue; // another snippet, which this one changed
                }
                Snippet s = e.snippet();
                note(s, place);
                if (e.status() == Snippet.Status.REJECTED) {
                    return rejected(s, source, place);
                }
                if (e.exception() != null) {
                    return thrown(e.exception(), r);
                }
                made.add(s);
                boolean value = after.isBlank() && isExpression(s.subKind());
                if (value && e.value() != null && !rest.stripTrailing().endsWith(";") && !r.stopped) {
                    end.put("result", Map.of("text/plain", shortened(e.value(), MAX_TEXT)));
                }
            }
            if (after.length() >= rest.length()) {
                break; // nothing was taken
            }
            rest = after.stripLeading();
        }
        for (Snippet s : made) {
            if (s instanceof DeclarationSnippet && shell.status(s) == Snippet.Status.RECOVERABLE_DEFINED) {
                err.println("line " + (places.get(s.id()).line + 1) + ": cannot be used until this is declared: "
                    + shell.unresolvedDependencies((DeclarationSnippet) s).collect(Collectors.joining(", ")));
            }
        }
        return null;
    }

    private static boolean isExpression(Snippet.SubKind kind) {
        return kind.hasValue() && kind != Snippet.SubKind.VAR_DECLARATION_SUBKIND && kind != Snippet.SubKind.VAR_DECLARATION_WITH_INITIALIZER_SUBKIND;
    }

    private void note(Snippet s, Place place) {
        places.put(s.id(), place);
        if (places.size() > MAX_SNIPPETS) {
            places.remove(places.keySet().iterator().next());
        }
    }

    // rejected describes the errors of a snippet that does not compile.
    private Failure rejected(Snippet s, String source, Place place) {
        Failure f = new Failure();
        f.name = "CompileError";
        StringBuilder all = new StringBuilder();
        String first = null;
        for (Diag d : shell.diagnostics(s).collect(Collectors.toList())) {
            if (!d.isError()) {
                continue;
            }
            int at = (int) Math.max(0, Math.min(source.length(), d.getPosition()));
            int line = place.line + 1 + (int) source.substring(0, at).chars().filter(c -> c == '\n').count();
            if (first == null) {
                first = d.getMessage(null);
                f.line = Math.min(line, place.run.lines.length);
            }
            String text = line <= place.run.lines.length ? place.run.lines[line - 1] : "";
            int column = at - (source.lastIndexOf('\n', at - 1) + 1);
            if (source.lastIndexOf('\n', at - 1) < 0) { // the snippet may begin within a line
                column = Math.max(0, text.indexOf(source.lines().findFirst().orElse(""))) + at;
            }
            all.append("line ").append(line).append(": ").append(d.getMessage(null)).append('\n');
            all.append(text).append('\n').append(" ".repeat(Math.min(column, text.length()))).append("^\n");
        }
        f.value = first == null ? "the code is not complete" : first;
        f.traceback = f.name + ": " + (first == null ? f.value : "\n" + all.toString().stripTrailing());
        return f;
    }

    // thrown describes an exception of user code.
    private Failure thrown(JShellException e, Run r) {
        Failure f = new Failure();
        StringBuilder all = new StringBuilder();
        Throwable t = e;
        for (int depth = 0; t != null && depth < 10; depth++, t = t.getCause()) {
            String name = t.getClass().getName(), value = String.valueOf(t.getMessage());
            if (t instanceof EvalException) {
                name = ((EvalException) t).getExceptionClassName();
                value = t.getMessage() == null ? "" : t.getMessage();
            } else if (t instanceof UnresolvedReferenceException) {
                DeclarationSnippet s = ((UnresolvedReferenceException) t).getSnippet();
                name = "UnresolvedReference";
                value = "not declared: " + shell.unresolvedDependencies(s).collect(Collectors.joining(", "));
            }
            if (depth == 0) {
                f.name = name;
                f.value = value;
            } else {
                all.append("\nCaused by: ");
            }
            all.append(name).append(value.isEmpty() ? "" : ": " + value);
            StackTraceElement[] frames = t.getStackTrace();
            for (int i = 0; i < frames.length && i < MAX_FRAMES; i++) {
                String file = String.valueOf(frames[i].getFileName());
                Place p = file.startsWith("#") ? places.get(file.substring(1)) : null;
                int line = p == null ? frames[i].getLineNumber() : p.line + frames[i].getLineNumber();
                if (p != null && p.run == r && f.line == 0) {
                    f.line = line;
                }
                String in = frames[i].getMethodName();
                if (p == null && !frames[i].getClassName().isEmpty()) {
                    in = frames[i].getClassName() + "." + in;
                }
                all.append("\n\tat ").append(in.isEmpty() || in.equals("do_it$") ? "" : in + " ");
                all.append(p == null ? "(" + frames[i].getFileName() + ":" + line + ")" : p.run == r ? "(line " + line + ")" : "(line " + line + " of run " + p.run.id + ")");
            }
        }
        f.traceback = all.toString();
        return f;
    }
}
