"""Draws one chart with matplotlib, as a JSON object on standard input says.

It is started as a program of its own in the sandbox. What callers send is data
here, never code.
"""
import json
import sys

spec = json.load(sys.stdin)
try:
    import matplotlib
except ImportError:
    sys.exit("matplotlib is not installed in this sandbox")
matplotlib.use("Agg")
import matplotlib.pyplot as plt

kind, data = spec["kind"], spec["data"]


def column(key):
    missing = [i for i, row in enumerate(data) if key not in row]
    if missing:
        sys.exit(f"data: row {missing[0]} has no {key!r}")
    return [row[key] for row in data]


def positions(n):
    return list(range(n))


def label(axes):
    axes.set_title(spec["title"], fontsize=16)
    axes.set_xlabel(spec["x_label"], fontsize=12)
    axes.set_ylabel(spec["y_label"], fontsize=12)


if kind == "line":
    figure, axes = plt.subplots(figsize=(10, 6), dpi=100)
    xs = column(spec["x_key"])
    for key in spec["y_keys"]:
        axes.plot(xs, column(key), marker="o", label=key)
    label(axes)
    axes.grid(True, linestyle="--", alpha=0.7)
    axes.legend()
    if len(data) > 10:
        axes.tick_params(axis="x", rotation=45)
elif kind == "bar":
    figure, axes = plt.subplots(figsize=(12, 7), dpi=100)
    categories = [str(c) for c in column(spec["category_key"])]
    keys = spec["value_keys"]
    width = 0.8 / max(len(keys), 1)
    horizontal = spec["orientation"] == "horizontal"
    for i, key in enumerate(keys):
        at = [p - 0.4 + width * (i + 0.5) for p in positions(len(categories))]
        if horizontal:
            axes.barh(at, column(key), height=width, label=key)
        else:
            axes.bar(at, column(key), width=width, label=key)
    if horizontal:
        spec["x_label"], spec["y_label"] = spec["y_label"], spec["x_label"]
        axes.set_yticks(positions(len(categories)), categories)
    else:
        axes.set_xticks(positions(len(categories)), categories, rotation=45 if len(categories) > 10 else 0)
    label(axes)
    axes.grid(True, linestyle="--", alpha=0.3, axis="x" if horizontal else "y")
    axes.legend()
elif kind == "scatter":
    figure, axes = plt.subplots(figsize=(10, 6), dpi=100)
    colours, sizes = "blue", 50
    if spec["color_key"]:
        colours = column(spec["color_key"])
        if not all(isinstance(c, (int, float)) for c in colours):
            order = {c: i for i, c in enumerate(dict.fromkeys(map(str, colours)))}
            colours = [order[str(c)] for c in colours]
    if spec["size_key"]:
        sizes = [20 * s for s in column(spec["size_key"])]
    points = axes.scatter(column(spec["x_key"]), column(spec["y_key"]), c=colours, s=sizes, alpha=0.7, edgecolors="w")
    if spec["color_key"]:
        figure.colorbar(points, ax=axes, label=spec["color_key"])
    label(axes)
    axes.grid(True, linestyle="--", alpha=0.3)
elif kind == "heatmap":
    figure, axes = plt.subplots(figsize=(10, 8), dpi=100)
    if not data or any(len(row) != len(data[0]) for row in data):
        sys.exit("data: the rows are not equally long")
    rows = spec["row_labels"] or [f"Row {i}" for i in range(len(data))]
    cols = spec["col_labels"] or [f"Col {i}" for i in range(len(data[0]))]
    try:
        image = axes.imshow(data, cmap=spec["cmap"])
    except ValueError as e:
        sys.exit(f"cmap: {e}")
    figure.colorbar(image, ax=axes)
    axes.set_xticks(positions(len(cols)), cols, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(positions(len(rows)), rows)
    most = max(max(row) for row in data)
    for i, row in enumerate(data):
        for j, value in enumerate(row):
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if value <= most / 2 else "black")
    axes.set_title(spec["title"])

figure.tight_layout()
figure.savefig(spec["save_path"], format="png")
