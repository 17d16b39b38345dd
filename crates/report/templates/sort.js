"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = (one, other) =>
        head.classList.contains("words") ? key(other).localeCompare(key(one)) : Number(key(one)) - Number(key(other));
      const rows = [...table.tBodies[0].rows];
      rows.sort((one, other) => (down ? -compare(one, other) : compare(one, other)));
      table.tBodies[0].append(...rows);
    });
  });
}
