package arch

// row says what the files of one package, other than its tests, may import of
// this module. "all" means anything.
type row struct {
	pkg     string
	imports string
}

// table is the one in docs/ARCHITECTURE.md. A line is changed in both places
// together, when the design changes.
var table = []row{
	{"cmd/glovebox", "cli, driver/gvisor/message, driver/gvisor/sentry, driver/gvisor/supervisor, guest, network, role"},
	{"cmd/glovebox-guest", "guest"},
	{"cmd/glovebox-release", "release"},
	{"test/browser", "nothing"},
	{"test/clients", "nothing"},
	{"test/compatibility", "nothing"},
	{"test/conformance", "auth, httpserver, mcpserver, mcpserver/task, sandbox"},
	{"sandbox", "nothing"},
	{"atomicfile", "nothing"},
	{"filelock", "nothing"},
	{"sealed", "sandbox"},
	{"state", "sandbox, sealed"},
	{"pinned", "sandbox"},
	{"ansi", "nothing"},
	{"briefmap", "nothing"},
	{"trace", "nothing"},
	{"fair", "sandbox"},
	{"fair/fairtest", "sandbox"},
	{"usage", "sandbox"},
	{"metrics", "fair, sandbox, trace, usage"},
	{"guestapi", "briefmap, sandbox"},
	{"guest", "guest/account, guest/changes, guest/contexts, guest/direct, guest/files, guest/lease, guest/picture, guest/process, guest/procfs, guest/rpc, guest/sudo, guestapi, sandbox, workspace"},
	{"guest/rpc", "guestapi"},
	{"guest/direct", "guestapi, pinned"},
	{"guest/lease", "guest/rpc, guestapi"},
	{"guest/procfs", "guestapi"},
	{"guest/regular", "guest/rpc, guestapi"},
	{"guest/account", "guest/regular, guest/rpc, guestapi"},
	{"guest/process", "guest/account, guest/procfs, guest/regular, guest/rpc, guestapi"},
	{"guest/sudo", "guest/account, guest/process, guest/procfs"},
	{"guest/picture", "guest/account, guest/process, guest/procfs, guest/rpc, guestapi, sandbox"},
	{"guest/picture/picturetest", "nothing"},
	{"guest/files", "guest/account, guest/edit, guest/procfs, guest/regular, guest/rpc, guest/search, guestapi, sandbox"},
	{"guest/edit", "sandbox"},
	{"guest/changes", "guest/account, guest/patch, guest/rpc, guest/search, guestapi, sandbox"},
	{"guest/patch", "nothing"},
	{"guest/search", "glob, guest/regular, guest/rpc, guestapi, sandbox"},
	{"guest/contexts", "guest/account, guest/process, guest/procfs, guest/rpc, guestapi, kernels, language, sandbox"},
	{"guest/guesttest", "guest, guest/account, guest/procfs, guest/sudo, guestapi, sandbox"},
	{"kernels", "language"},
	{"language", "sandbox"},
	{"guestbin", "atomicfile"},
	{"driver", "sandbox"},
	{"driver/auto", "driver, sandbox"},
	{"driver/drivertest", "driver, guestapi, sandbox"},
	{"driver/fake", "atomicfile, driver, guest, sandbox"},
	{"driver/container", "atomicfile, driver, driver/container/lease, driver/container/link, driver/container/stdio, guestapi, network, sandbox"},
	{"driver/container/filearchive", "sandbox"},
	{"driver/container/lease", "driver, guestapi, sandbox"},
	{"driver/container/link", "network, sandbox"},
	{"driver/container/registries", "network, sandbox"},
	{"driver/container/stdio", "nothing"},
	{"driver/docker", "driver, driver/container, driver/container/lease, driver/container/registries, driver/container/stdio, driver/docker/dockerapi, driver/docker/snapshots, sandbox"},
	{"driver/kubernetes", "driver, driver/container, driver/container/lease, driver/container/stdio, driver/kubernetes/claim, driver/kubernetes/direct, driver/kubernetes/doctor, driver/kubernetes/podstate, guestapi, sandbox"},
	{"driver/kubernetes/claim", "driver/container, sandbox"},
	{"driver/kubernetes/direct", "driver/container/stdio, guestapi, pinned, sandbox"},
	{"driver/kubernetes/doctor", "driver/kubernetes/probe, sandbox"},
	{"driver/kubernetes/podstate", "driver/container, sandbox"},
	{"driver/kubernetes/probe", "nothing"},
	{"driver/docker/dockerapi", "driver, driver/container, driver/container/stdio, sandbox"},
	{"driver/docker/snapshots", "driver, driver/container, driver/container/filearchive, driver/docker/dockerapi, guestapi, sandbox"},
	{"driver/e2b", "atomicfile, driver, driver/e2b/plane, driver/e2b/snapshots, guestapi, language, sandbox"},
	{"driver/e2b/plane", "driver, sandbox"},
	{"driver/e2b/snapshots", "atomicfile, driver/e2b/plane, sandbox"},
	{"driver/gvisor", "briefmap, driver, driver/gvisor/allowance, driver/gvisor/builds, driver/gvisor/callfilter, driver/gvisor/cgroup, driver/gvisor/diagnosis, driver/gvisor/memwatch, driver/gvisor/message, driver/gvisor/process, driver/gvisor/rootfs, driver/gvisor/snapfiles, driver/gvisor/users, guestapi, image, network, sandbox, sealed, state, trace"},
	{"driver/gvisor/supervisor", "atomicfile, driver, driver/gvisor/allowance, driver/gvisor/builds, driver/gvisor/bundle, driver/gvisor/cgroup, driver/gvisor/checkpoint, driver/gvisor/diagnosis, driver/gvisor/memwatch, driver/gvisor/message, driver/gvisor/process, driver/gvisor/rootfs, driver/gvisor/sentry, driver/gvisor/users, network, sandbox, sealed, state, trace"},
	{"driver/gvisor/sentry", "atomicfile, driver/gvisor/allowance, driver/gvisor/diagnosis, network"},
	{"driver/gvisor/message", "driver, driver/gvisor/builds, driver/gvisor/cgroup, sandbox, sealed, trace"},
	{"driver/gvisor/bundle", "driver, driver/gvisor/cgroup, driver/gvisor/message, driver/gvisor/rootfs, driver/gvisor/users, network, sandbox"},
	{"driver/gvisor/checkpoint", "atomicfile, driver/gvisor/memwatch, driver/gvisor/message, driver/gvisor/rootfs, sandbox, sealed, state"},
	{"driver/gvisor/builds", "driver, sandbox"},
	{"driver/gvisor/cgroup", "sandbox"},
	{"driver/gvisor/allowance", "driver/gvisor/cgroup, sandbox"},
	{"driver/gvisor/process", "driver/gvisor/users, network"},
	{"driver/gvisor/memwatch", "driver/gvisor/allowance, driver/gvisor/process"},
	{"driver/gvisor/snapfiles", "atomicfile, driver, sandbox, sealed"},
	{"driver/gvisor/rootfs", "driver/gvisor/message, sandbox"},
	{"driver/gvisor/users", "driver/gvisor/message, driver/gvisor/rootfs"},
	{"driver/gvisor/callfilter", "nothing"},
	{"driver/gvisor/diagnosis", "driver, sandbox"},
	{"image", "atomicfile, image/erofs, sandbox"},
	{"image/erofs", "nothing"},
	{"image/dockersave", "sandbox"},
	{"network", "atomicfile, sandbox"},
	{"role", "nothing"},
	{"pool", "driver, metrics, sandbox, trace"},
	{"pool/prepare", "driver, guestapi, interpreter, kernels, language, sandbox"},
	{"image/imagetest", "nothing"},
	{"imagebuild", "driver, sandbox"},
	{"template", "driver, fair, imagebuild, safepath, sandbox, store"},
	{"interpreter", "language, sandbox"},
	{"safepath", "nothing"},
	{"glob", "nothing"},
	{"jsonbound", "nothing"},
	{"workspace", "atomicfile, safepath, sandbox"},
	{"store", "filelock, sandbox, usage"},
	{"engine/excerpt", "ansi, sandbox"},
	{"engine/service", "sandbox"},
	{"engine/request", "driver, engine/excerpt, engine/service, guestapi, sandbox"},
	{"engine/verdict", "driver, engine/excerpt, guestapi, sandbox"},
	{"engine/runlog", "engine/excerpt, fair, sandbox, store"},
	{"engine/guestlink", "driver, engine/verdict, guestapi, interpreter, kernels, sandbox"},
	{"engine/languages", "engine/excerpt, engine/guestlink, interpreter, language, sandbox"},
	{"engine/mount", "driver, engine/excerpt, engine/request, engine/verdict, guestapi, sandbox, store, workspace"},
	{"engine/images", "driver, engine/excerpt, engine/request, fair, interpreter, sandbox, store"},
	{"engine/places", "engine/request, fair, metrics, sandbox"},
	{"engine/strays", "driver, sandbox, store"},
	{"engine/retention", "engine/runlog, sandbox, store"},
	{"engine/hibernation", "driver, fair, metrics, sandbox, store"},
	{"engine/traffic", "driver, metrics, sandbox"},
	{"engine/account", "driver, engine/traffic, sandbox, store, usage"},
	{"engine/snapshot", "driver, engine/excerpt, engine/request, metrics, sandbox, store"},
	{"engine/run", "driver, engine/excerpt, engine/guestlink, engine/mount, engine/request, engine/runlog, engine/service, engine/traffic, engine/verdict, fair, guestapi, interpreter, language, metrics, sandbox, store, trace"},
	{"engine", "briefmap, driver, engine/account, engine/excerpt, engine/guestlink, engine/hibernation, engine/images, engine/languages, engine/mount, engine/places, engine/request, engine/retention, engine/run, engine/runlog, engine/snapshot, engine/strays, engine/traffic, engine/verdict, fair, guestapi, interpreter, language, metrics, sandbox, store, trace, usage, workspace"},
	{"statedir", "sandbox"},
	{"operator", "control, driver, sandbox, store"},
	{"auth", "atomicfile, sandbox"},
	{"audit", "auth, fair, filelock, sandbox"},
	{"audited", "audit, engine, guestapi, sandbox"},
	{"signin", "auth, fair, sandbox"},
	{"hostfiles", "glob, safepath, sandbox"},
	{"mcpserver", "ansi, auth, fair, language, mcpserver/advice, mcpserver/answer, mcpserver/approval, mcpserver/argument, mcpserver/client, mcpserver/complete, mcpserver/ledger, mcpserver/lost, mcpserver/notices, mcpserver/profile, mcpserver/prompts, mcpserver/resultview, mcpserver/snapshots, mcpserver/task, mcpserver/transport, mcpserver/visits, sandbox, trace"},
	{"mcpserver/resultview", "webmodule"},
	{"webmodule", "nothing"},
	{"mcpserver/argument", "sandbox"},
	{"mcpserver/answer", "mcpserver/advice, mcpserver/argument, sandbox"},
	{"mcpserver/client", "nothing"},
	{"mcpserver/snapshots", "mcpserver/answer, mcpserver/argument, sandbox"},
	{"mcpserver/complete", "auth, sandbox"},
	{"mcpserver/lost", "auth, sandbox"},
	{"mcpserver/advice", "sandbox"},
	{"mcpserver/approval", "sandbox"},
	{"mcpserver/ledger", "fair, sandbox"},
	{"mcpserver/notices", "sandbox"},
	{"mcpserver/prompts", "auth, mcpserver/advice, sandbox"},
	{"mcpserver/task", "auth"},
	{"mcpserver/transport", "auth, fair, jsonbound, mcpserver/ledger, mcpserver/task, sandbox"},
	{"mcpserver/visits", "sandbox"},
	{"mcpserver/profile", "auth, sandbox"},
	{"mcpserver/profile/automata", "auth, mcpserver/profile, sandbox"},
	{"mcpserver/profile/coderunner", "auth, mcpserver/profile, sandbox"},
	{"mcpserver/profile/e2b", "auth, language, mcpserver/profile, sandbox"},
	{"mcpserver/profile/interpreter", "auth, language, mcpserver/profile, sandbox"},
	{"e2bapi/templates", "jsonbound, sandbox, template"},
	{"e2bapi", "auth, e2bapi/templates, fair, guestapi, preview, sandbox"},
	{"dashboard", "ansi, audit, auth, dashboard/socket, fair, sandbox, usage, webmodule"},
	{"httpserver", "auth, fair, metrics, preview, problem, safepath, sandbox, trace, usage"},
	{"adminapi", "auth, problem, sandbox, usage"},
	{"problem", "sandbox"},
	{"dashboard/socket", "sandbox"},
	{"preview", "sandbox"},
	{"config", "sandbox"},
	{"control", "sandbox"},
	{"app", "all"},
	{"clientconfig", "atomicfile, sandbox"},
	{"update", "atomicfile, sandbox"},
	{"release", "sandbox, update"},
	{"bench", "sandbox"},
	{"cli/console", "sandbox"},
	{"cli/advice", "sandbox"},
	{"cli/install", "app, cli/console, clientconfig, config, sandbox"},
	{"cli/results", "sandbox"},
	{"cli/replay", "ansi, sandbox"},
	{"cli/screen", "sandbox"},
	{"cli/snapshots", "app, cli/console, control, sandbox"},
	{"cli", "app, audit, bench, cli/advice, cli/console, cli/install, cli/replay, cli/results, cli/screen, cli/snapshots, config, language, operator, sandbox, trace, update, usage"},
	{"arch", "nothing"},
}

// outside lists every module that is not ours, and which packages import it.
// A module is met in one place, so that it can be replaced in one place.
var outside = map[string][]string{
	"aead.dev/minisign":                      {"release", "update"},
	"github.com/containerd/errdefs":          {"driver/docker", "driver/docker/dockerapi", "driver/docker/snapshots"}, // the engine's client sorts its errors by it
	"github.com/coreos/go-oidc/v3":           {"auth"},
	"github.com/erofs/go-erofs":              {"tests"}, // a reader of what image/erofs writes
	"github.com/distribution/reference":      {"driver/docker"},
	"github.com/google/go-cmp":               {"tests"},
	"github.com/google/go-containerregistry": {"image", "image/imagetest"},
	"github.com/google/subcommands":          {"driver/gvisor/sentry"}, // the form of gVisor's commands
	"github.com/google/jsonschema-go":        {"mcpserver", "mcpserver/argument"},
	"github.com/gorilla/websocket":           {"driver/kubernetes"}, // what Kubernetes' client hands out
	"github.com/klauspost/compress":          {"driver/gvisor/snapfiles", "image", "state"},
	"github.com/moby/moby/api":               {"driver/docker", "driver/docker/dockerapi", "driver/docker/snapshots"},
	"github.com/moby/moby/client":            {"driver/docker", "driver/docker/dockerapi", "driver/docker/snapshots"},
	"github.com/moby/patternmatcher":         {"imagebuild"}, // what .dockerignore says
	"github.com/moby/sys/capability":         {"driver/gvisor/sentry"},
	"github.com/modelcontextprotocol/go-sdk": {"mcpserver", "mcpserver/answer", "mcpserver/approval", "mcpserver/complete", "mcpserver/notices", "mcpserver/prompts", "mcpserver/resultview", "mcpserver/task", "mcpserver/transport", "test/conformance"},
	"github.com/opencontainers/runtime-spec": {"driver/gvisor/bundle", "driver/gvisor/rootfs", "driver/gvisor/sentry", "driver/gvisor/supervisor", "driver/gvisor/users"},
	"github.com/pelletier/go-toml/v2":        {"clientconfig"},
	"github.com/prometheus/client_golang":    {"metrics"},
	"github.com/prometheus/client_model":     {"metrics"}, // what its registry gathers
	"github.com/rogpeppe/go-internal":        {"cli/install", "tests"},
	"github.com/spf13/cobra":                 {"cli", "cli/install", "cli/snapshots"},
	"github.com/spf13/pflag":                 {"cli"}, // belongs to cobra
	"github.com/mattn/go-sixel":              {"guest/picture"},
	"github.com/tailscale/hujson":            {"clientconfig"},
	"go.yaml.in/yaml/v3":                     {"config", "interpreter"},
	"golang.org/x/image":                     {"guest/picture"},
	"golang.org/x/mod":                       {"cli", "driver/e2b", "release", "update"},
	"golang.org/x/net":                       {"dashboard", "network"}, // tables of results; DNS messages
	"golang.org/x/oauth2":                    {"auth", "tests"},        // sign-in at an issuer; a client of signin
	"golang.org/x/sync":                      {"pool"},
	"golang.org/x/sys":                       {"cli/screen", "driver/container/link", "driver/fake", "driver/gvisor", "driver/gvisor/builds", "driver/gvisor/callfilter", "driver/gvisor/cgroup", "driver/gvisor/checkpoint", "driver/gvisor/diagnosis", "driver/gvisor/memwatch", "driver/gvisor/message", "driver/gvisor/process", "driver/gvisor/rootfs", "driver/gvisor/sentry", "driver/gvisor/snapfiles", "driver/gvisor/supervisor", "driver/gvisor/users", "filelock", "guest", "guest/account", "guest/changes", "guest/contexts", "guest/files", "guest/picture", "guest/process", "guest/procfs", "guest/regular", "guest/rpc", "guest/search", "guest/sudo", "image", "image/erofs", "network", "safepath", "state", "tests", "workspace"}, // system calls are not an SDK
	"golang.org/x/term":                      {"cli", "cli/console"},
	"golang.org/x/time":                      {"auth", "dashboard", "httpserver", "network", "signin"},
	"gvisor.dev/gvisor":                      {"driver/gvisor/bundle", "driver/gvisor/callfilter", "driver/gvisor/checkpoint", "driver/gvisor/rootfs", "driver/gvisor/sentry", "driver/gvisor/supervisor", "network"},
	"k8s.io/api":                             {"driver/kubernetes", "driver/kubernetes/claim", "driver/kubernetes/doctor", "driver/kubernetes/podstate"},
	"k8s.io/apimachinery":                    {"driver/kubernetes", "driver/kubernetes/doctor"},
	"k8s.io/client-go":                       {"driver/kubernetes"}, // without its typed clients, which have all types of all APIs
	"k8s.io/klog/v2":                         {"driver/kubernetes"}, // to silence that client
	"modernc.org/sqlite":                     {"store"},
}

// longFiles are over maxLines, each for a reason.
var longFiles = map[string]string{}

// longPackages are over maxPackageLines, each for a reason.
var longPackages = map[string]string{
	"cli":                      "a file for each command; they share only the program and its streams",
	"driver/drivertest":        "one suite for all drivers",
	"driver/gvisor":            "a box, a saved box and a snapshot are reached by one client, also of an earlier build",
	"driver/gvisor/supervisor": "a box is made, paused, saved, restored and destroyed under the same locks",
	"engine":                   "its exported methods are what the edges call; the rules behind them are in packages below it",
}

// testOnly are packages that are in no program. What they import beyond the
// table, tests import.
var testOnly = map[string]bool{"driver/drivertest": true, "driver/fake": true, "fair/fairtest": true, "guest/guesttest": true, "guest/picture/picturetest": true, "image/imagetest": true}

// standardOutput lists the packages other than cli that may speak of
// os.Stdout, each for a reason. On stdio standard output belongs to the
// protocol.
var standardOutput = map[string]string{
	"cmd/glovebox-release":     "a program of its own, which serves no protocol",
	"test/compatibility":       "likewise",
	"guest/sudo":               "the command is a process of its own, which serves no protocol",
	"driver/gvisor/supervisor": "the process has streams of its own, and sees to it that the library writes to none",
}

// notSecret lists the packages that may use math/rand, each for a reason.
var notSecret = map[string]string{
	"driver/e2b/plane":         "how long to wait before asking again; it names nothing and protects nothing",
	"driver/gvisor/supervisor": "the choice of processors for a box; it names nothing and protects nothing",
}
