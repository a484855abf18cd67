// Sorts tables by their columns.
const value = (row, i) => row.cells[i]?.textContent.trim() ?? '';
const number = (text) => (/\d/.test(text) ? Number(text.replace(/[%,$€£_\s]/g, '')) : NaN);

// sortable has the names of a table's columns sort its rows.
export function sortable(table) {
  const heads = [...(table.tHead?.rows[0]?.cells ?? [])], body = table.tBodies[0];
  if (!body || table.dataset.sortable) return;
  table.dataset.sortable = 'yes';
  heads.forEach((th, i) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'sort';
    button.append(...th.childNodes);
    if (!button.textContent.trim()) button.setAttribute('aria-label', `Column ${i + 1}`);
    th.append(button);
    button.addEventListener('click', () => {
      const down = th.getAttribute('aria-sort') === 'ascending';
      for (const other of heads) other.removeAttribute('aria-sort');
      th.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const rows = [...body.rows], numeric = rows.every((r) => value(r, i) === '' || !Number.isNaN(number(value(r, i))));
      rows.sort((a, b) => (numeric ? number(value(a, i)) - number(value(b, i)) : value(a, i).localeCompare(value(b, i))));
      if (down) rows.reverse();
      body.append(...rows);
    });
  });
}
