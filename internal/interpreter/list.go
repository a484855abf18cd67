package interpreter

import (
	_ "embed"
	"slices"
	"strings"
)

// A Lister lists the packages of a sandbox by a program. The program writes a
// line for each package: its name, its version, and a third word if the package
// is installed in [language.PackageDir].
type Lister struct {
	Installer string
	Argv      []string
	notable   []string
}

//go:embed install/list.py
var listPython string

//go:embed install/list.js
var listNode string

// Listers returns all listers. If several have the same Installer, the first
// whose program is in the sandbox lists its packages.
func Listers() []Lister {
	return []Lister{
		{Installer: "pip", Argv: []string{"python3", "-c", listPython}, notable: notablePython},
		{Installer: "npm", Argv: []string{"node", "-e", listNode}},
		{Installer: "npm", Argv: []string{"bun", "-e", listNode}},
	}
}

// notablePython are the packages that callers often ask for.
var notablePython = strings.Fields(`altair beautifulsoup4 bokeh duckdb fastapi flask fpdf2 geopandas httpx imageio
	ipython jinja2 joblib keras lightgbm lxml matplotlib networkx nltk numba numpy opencv-python openpyxl pandas
	pillow pip plotly polars psycopg2 pyarrow pydantic pypdf pytest python-docx python-pptx pyyaml reportlab requests
	scikit-image scikit-learn scipy seaborn shapely spacy sqlalchemy statsmodels sympy tensorflow tokenizers torch
	tqdm transformers xarray xgboost`)

// Notable reports whether to list a package. Installed packages are always
// listed.
func (l Lister) Notable(name string, installed bool) bool {
	plain := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	return installed || l.notable == nil || slices.Contains(l.notable, plain)
}
