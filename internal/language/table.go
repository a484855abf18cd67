package language

// All returns the languages, in the order in which they are listed. The caller
// must not change a list or a map in it.
func All() []Language {
	return []Language{
		{
			Name:      Python,
			Installer: "pip",
			Aliases:   []string{"python3", "py"},
			Context:   &Context{Programs: []string{"python3", "python"}, Others: []string{IPython}, Nothing: "pass", Ahead: true},
			// Modules that analyses usually import. Their import takes a second
			// or more.
			Warm:      []string{"numpy", "pandas", "matplotlib.pyplot"},
			Extension: "py",
			Env: map[string]string{
				// Import the user's modules from the data's directory, not the
				// program's.
				"PYTHONPATH": PlaceCwd,
				// Unbuffered, so that a kill does not lose output.
				"PYTHONUNBUFFERED": "1",
			},
			Variants: interpreted("python3", "python"),
			Package:  "python3",
			Image:    "python:3-slim",
		},
		{
			Name:      JavaScript,
			Installer: "npm",
			Aliases:   []string{"js", "node", "nodejs"},
			Context:   &Context{Programs: []string{"node", "nodejs", "bun"}, Nothing: ";", Ahead: true},
			Extension: "js",
			Env:       map[string]string{"NODE_PATH": PlaceCwd + "/node_modules:" + NodeModules},
			Variants:  append(interpreted("node", "nodejs"), Variant{Command: []string{"bun", "run", PlaceFile}}),
			Package:   "nodejs",
			Image:     "node:lts-slim",
		},
		{
			Name:      TypeScript,
			Installer: "npm",
			Aliases:   []string{"ts"},
			// Its runs are JavaScript, after the types are removed. Every Bun can do
			// that, but not every Node.
			Context:   &Context{Programs: []string{"bun", "node", "nodejs"}, Nothing: ";"},
			Extension: "ts",
			Env:       map[string]string{"NODE_PATH": PlaceCwd + "/node_modules:" + NodeModules},
			Variants: []Variant{
				{
					Command: []string{"node", "--experimental-strip-types", "--disable-warning=ExperimentalWarning", PlaceFile},
					Probe:   []string{"node", "--experimental-strip-types", "--disable-warning=ExperimentalWarning", "-e", ""},
				},
				{Command: []string{"bun", "run", PlaceFile}},
				{Command: []string{"tsx", PlaceFile}},
			},
			Package: "nodejs, 22.6 or newer",
			Image:   "node:lts-slim",
		},
		{
			Name:      Bash,
			Installer: "apt",
			Aliases:   []string{"shell"},
			Context:   &Context{Programs: []string{"bash"}, Shell: true, Nothing: ":"},
			Extension: "sh",
			Variants:  interpreted("bash"),
			Package:   "bash",
			Image:     "debian:stable-slim",
		},
		{
			Name:      Sh,
			Installer: "apt",
			Context:   &Context{Programs: []string{"sh"}, Shell: true, Nothing: ":"},
			Extension: "sh",
			Variants:  interpreted("/bin/sh"),
			Package:   "dash",
			Image:     "debian:stable-slim",
		},
		{
			Name:       "go",
			VersionArg: "version",
			Aliases:    []string{"golang"},
			Extension:  "go",
			// A newer toolchain would have to be downloaded, without a network.
			Env: map[string]string{"GOTOOLCHAIN": "local"},
			Variants: []Variant{
				compiled("go", `go build -o "$0/main" "$0/main.go" && exec "$0/main" "$@"`),
				// The path in Go's own archive, which is on no PATH by default.
				compiled("/usr/local/go/bin/go", `/usr/local/go/bin/go build -o "$0/main" "$0/main.go" && exec "$0/main" "$@"`),
			},
			Package: "golang",
			Image:   "golang:latest",
		},
		{
			Name:      "rust",
			Aliases:   []string{"rs"},
			Extension: "rs",
			Variants:  []Variant{compiled("rustc", `rustc -o "$0/main" "$0/main.rs" && exec "$0/main" "$@"`)},
			Package:   "rustc",
			Image:     "rust:slim",
		},
		{
			Name:      "c",
			Extension: "c",
			Variants: []Variant{
				compiled("cc", `cc -O1 -o "$0/main" "$0/main.c" -lm && exec "$0/main" "$@"`),
				compiled("gcc", `gcc -O1 -o "$0/main" "$0/main.c" -lm && exec "$0/main" "$@"`),
				compiled("clang", `clang -O1 -o "$0/main" "$0/main.c" -lm && exec "$0/main" "$@"`),
			},
			Package: "gcc libc6-dev",
			Image:   "gcc:latest",
		},
		{
			Name:      "c++",
			Aliases:   []string{"cpp", "cxx"},
			Extension: "cpp",
			Variants: []Variant{
				compiled("c++", `c++ -O1 -o "$0/main" "$0/main.cpp" && exec "$0/main" "$@"`),
				compiled("g++", `g++ -O1 -o "$0/main" "$0/main.cpp" && exec "$0/main" "$@"`),
				compiled("clang++", `clang++ -O1 -o "$0/main" "$0/main.cpp" && exec "$0/main" "$@"`),
			},
			Package: "g++",
			Image:   "gcc:latest",
		},
		{
			Name:      Java,
			Context:   &Context{Programs: []string{"java"}, Fields: true, Source: true, Nothing: ";"},
			Extension: "java",
			// java compiles a source file in memory. A bare runtime lacks the
			// compiler.
			Variants: []Variant{{Command: []string{"java", PlaceFile}, Detect: []string{"java", "javac"}}},
			Package:  "default-jdk-headless",
			Image:    "eclipse-temurin:latest",
		},
		{
			Name:      "ruby",
			Aliases:   []string{"rb"},
			Extension: "rb",
			Variants:  interpreted("ruby"),
			Package:   "ruby",
			Image:     "ruby:slim",
		},
		{
			Name:      "php",
			Extension: "php",
			Variants:  interpreted("php"),
			Package:   "php-cli",
			Image:     "php:cli",
		},
		{
			Name:      "perl",
			Aliases:   []string{"pl"},
			Extension: "pl",
			Variants:  interpreted("perl"),
			Package:   "perl",
			Image:     "perl:slim",
		},
		{
			Name:       "lua",
			VersionArg: "-v",
			Extension:  "lua",
			Variants:   interpreted("lua", "lua5.4", "lua5.3", "luajit"),
			Package:    "lua5.4",
			Image:      "nickblah/lua:5.4",
		},
		{
			Name:      R,
			Aliases:   []string{"rscript"},
			Context:   &Context{Programs: []string{"Rscript"}, Fields: true, Nothing: "invisible()"},
			Extension: "R",
			Variants:  interpreted("Rscript"),
			Package:   "r-base-core",
			Image:     "r-base:latest",
		},
		{
			Name:      "julia",
			Aliases:   []string{"jl"},
			Extension: "jl",
			Variants:  interpreted("julia"),
			Package:   "julia",
			Image:     "julia:latest",
		},
	}
}

// interpreted returns variants for programs whose argument is the file to run.
func interpreted(programs ...string) []Variant {
	var vs []Variant
	for _, p := range programs {
		vs = append(vs, Variant{Command: []string{p, PlaceFile}})
	}
	return vs
}

// compiled returns a variant with a compiler. The script's $0 is the run's
// directory, and its parameters are the program's arguments.
func compiled(compiler, script string) Variant {
	return Variant{Command: []string{"/bin/sh", "-c", script, PlaceDir}, Detect: []string{compiler}}
}
