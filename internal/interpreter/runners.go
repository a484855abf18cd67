package interpreter

// Runners returns the built-in languages.
func Runners() Table {
	return Table{
		{
			Language:  "python",
			Installer: "pip",
			Aliases:   []string{"python3", "py"},
			Kernel:    "python",
			// Modules that analyses usually import. Their import takes a second
			// or more.
			Warm:      []string{"numpy", "pandas", "matplotlib.pyplot"},
			Extension: "py",
			Env: map[string]string{
				// Import the user's modules from the data's directory, not the
				// program's.
				"PYTHONPATH": placeCwd,
				// Unbuffered, so that a kill does not lose output.
				"PYTHONUNBUFFERED": "1",
			},
			Variants: interpreted("python3", "python"),
			Package:  "python3",
			Image:    "python:3-slim",
		},
		{
			Language:  "javascript",
			Installer: "npm",
			Aliases:   []string{"js", "node", "nodejs"},
			Kernel:    "javascript",
			Extension: "js",
			Env:       map[string]string{"NODE_PATH": placeCwd + "/node_modules:" + nodeModules},
			Variants:  append(interpreted("node", "nodejs"), Variant{Command: []string{"bun", "run", placeFile}}),
			Package:   "nodejs",
			Image:     "node:lts-slim",
		},
		{
			Language:  "typescript",
			Installer: "npm",
			Aliases:   []string{"ts"},
			Kernel:    "typescript",
			Extension: "ts",
			Env:       map[string]string{"NODE_PATH": placeCwd + "/node_modules:" + nodeModules},
			Variants: []Variant{
				{
					Command: []string{"node", "--experimental-strip-types", "--disable-warning=ExperimentalWarning", placeFile},
					Probe:   []string{"node", "--experimental-strip-types", "--disable-warning=ExperimentalWarning", "-e", ""},
				},
				{Command: []string{"bun", "run", placeFile}},
				{Command: []string{"tsx", placeFile}},
			},
			Package: "nodejs, 22.6 or newer",
			Image:   "node:lts-slim",
		},
		{
			Language:  "bash",
			Installer: "apt",
			Aliases:   []string{"shell"},
			Kernel:    "bash",
			Extension: "sh",
			Variants:  interpreted("bash"),
			Package:   "bash",
			Image:     "debian:stable-slim",
		},
		{
			Language:  "sh",
			Installer: "apt",
			Kernel:    "sh",
			Extension: "sh",
			Variants:  interpreted("/bin/sh"),
			Package:   "dash",
			Image:     "debian:stable-slim",
		},
		{
			Language:  "go",
			Version:   "version",
			Aliases:   []string{"golang"},
			Extension: "go",
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
			Language:  "rust",
			Aliases:   []string{"rs"},
			Extension: "rs",
			Variants:  []Variant{compiled("rustc", `rustc -o "$0/main" "$0/main.rs" && exec "$0/main" "$@"`)},
			Package:   "rustc",
			Image:     "rust:slim",
		},
		{
			Language:  "c",
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
			Language:  "c++",
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
			Language:  "java",
			Extension: "java",
			// java compiles a source file in memory. A bare runtime lacks the
			// compiler.
			Variants: []Variant{{Command: []string{"java", placeFile}, Detect: []string{"java", "javac"}}},
			Package:  "default-jdk-headless",
			Image:    "eclipse-temurin:latest",
		},
		{
			Language:  "ruby",
			Aliases:   []string{"rb"},
			Extension: "rb",
			Variants:  interpreted("ruby"),
			Package:   "ruby",
			Image:     "ruby:slim",
		},
		{
			Language:  "php",
			Extension: "php",
			Variants:  interpreted("php"),
			Package:   "php-cli",
			Image:     "php:cli",
		},
		{
			Language:  "perl",
			Aliases:   []string{"pl"},
			Extension: "pl",
			Variants:  interpreted("perl"),
			Package:   "perl",
			Image:     "perl:slim",
		},
		{
			Language:  "lua",
			Version:   "-v",
			Extension: "lua",
			Variants:  interpreted("lua", "lua5.4", "lua5.3", "luajit"),
			Package:   "lua5.4",
			Image:     "nickblah/lua:5.4",
		},
		{
			Language:  "r",
			Aliases:   []string{"rscript"},
			Extension: "R",
			Variants:  interpreted("Rscript"),
			Package:   "r-base-core",
			Image:     "r-base:latest",
		},
		{
			Language:  "julia",
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
		vs = append(vs, Variant{Command: []string{p, placeFile}})
	}
	return vs
}

// compiled returns a variant with a compiler. The script's $0 is the run's
// directory, and its parameters are the program's arguments.
func compiled(compiler, script string) Variant {
	return Variant{Command: []string{"/bin/sh", "-c", script, placeDir}, Detect: []string{compiler}}
}
