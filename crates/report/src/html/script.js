// Shows what a mark says on hover, focus and tap, moves between marks by arrow keys, saves the files inside the page, and
// opens what is to be printed. Asks nothing of any network.
(() => {
  "use strict";
  const tip = document.getElementById("tip");
  let shown = null;

  const hide = () => {
    shown = null;
    tip.hidden = true;
  };

  const show = (mark, across) => {
    shown = mark;
    tip.textContent = mark.getAttribute("aria-label");
    tip.hidden = false;
    const place = mark.getBoundingClientRect();
    const middle = across ?? place.left + Math.min(place.width / 2, 160);
    const left = Math.min(Math.max(middle - tip.offsetWidth / 2, 8), document.documentElement.clientWidth - tip.offsetWidth - 8);
    const below = place.bottom + 6;
    const fits = below + tip.offsetHeight < window.innerHeight;
    tip.style.left = Math.max(left, 0) + "px";
    tip.style.top = (fits ? below : Math.max(place.top - tip.offsetHeight - 6, 4)) + "px";
  };

  const markOf = (event) => event.target instanceof Element ? event.target.closest(".mark") : null;

  document.addEventListener("pointerover", (event) => {
    const mark = markOf(event);
    if (mark) show(mark, event.clientX);
    else if (shown && shown !== document.activeElement) hide();
  });
  document.addEventListener("focusin", (event) => {
    const mark = markOf(event);
    if (mark) show(mark);
    else hide();
  });
  document.addEventListener("focusout", hide);
  // What has the focus keeps what it says while the page moves.
  const moved = () => shown && shown === document.activeElement ? show(shown) : hide();
  document.addEventListener("scroll", moved, { capture: true, passive: true });
  document.addEventListener("click", (event) => {
    const mark = markOf(event);
    if (!mark) return hide();
    mark.focus({ preventScroll: true });
    show(mark, event.clientX);
  });

  const step = (key, at, count) => ({
    ArrowDown: Math.min(at + 1, count - 1), ArrowRight: Math.min(at + 1, count - 1),
    ArrowUp: Math.max(at - 1, 0), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: count - 1,
  })[key];
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const mark = markOf(event);
    if (!mark) return;
    const marks = [...mark.closest("[role=group]").querySelectorAll(".mark")];
    const to = step(event.key, marks.indexOf(mark), marks.length);
    if (to === undefined) return;
    event.preventDefault();
    mark.setAttribute("tabindex", "-1");
    marks[to].setAttribute("tabindex", "0");
    marks[to].focus();
    show(marks[to]);
  });

  for (const button of document.querySelectorAll("button[data-from]")) {
    button.addEventListener("click", () => {
      const file = JSON.parse(document.getElementById(button.dataset.from).textContent);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([file.text], { type: file.media }));
      link.download = file.name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    });
  }

  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.print:not([open])")];
    for (const details of opened) details.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
  });
})();
