"""The script of a flame graph: a click on a box makes it as wide as the picture, a click on a thread shows all again.

It runs where the SVG itself is opened in a browser; as a picture in a page the graph stands as it was drawn.
"""

ZOOM = """\
<script><![CDATA[
(() => {
  const boxes = [...document.querySelectorAll("g.box")].map(g => ({
    g, rect: g.querySelector("rect"), text: g.querySelector("text"),
    x: +g.dataset.x, wide: +g.dataset.wide, row: +g.dataset.row, label: g.dataset.label}));
  const short = (text, room) => {
    if (text.length > room && text.includes("::")) {
      let bare = text, before;
      do { before = bare; bare = bare.replace(/<[^<>]*>/g, ""); } while (bare !== before);
      text = bare.split("(")[0].split("::").pop() || text;
    }
    return text.length <= room ? text : room > 2 ? text.slice(0, room - 1) + "…" : "";
  };
  const zoom = to => {
    for (const box of boxes) {
      const around = box.row <= to.row && box.x <= to.x + 1e-9 && box.x + box.wide >= to.x + to.wide - 1e-9;
      const within = box.row >= to.row && box.x >= to.x - 1e-9 && box.x + box.wide <= to.x + to.wide + 1e-9;
      box.g.style.display = around || within ? "" : "none";
      box.g.style.opacity = around && box !== to ? 0.5 : 1;
      const left = around ? 0 : (box.x - to.x) / to.wide, wide = (around ? 1 : box.wide / to.wide) * PLOT;
      box.rect.setAttribute("x", LEFT + left * PLOT);
      box.rect.setAttribute("width", Math.max(0.3, wide - 0.5));
      box.text.setAttribute("x", LEFT + 3 + left * PLOT);
      box.text.textContent = short(box.label, Math.floor((wide - 6) / CHARACTER));
    }
  };
  const all = {x: 0, wide: 1, row: -1};
  for (const box of boxes) box.g.addEventListener("click", () => zoom(box.row ? box : all));
})();
]]></script>"""


def zoom_script(left: float, plot: float, character: float) -> str:
    """The script for boxes that begin at `left` and are `plot` wide together, a letter `character` (px)."""
    return ZOOM.replace("LEFT", f"{left:g}").replace("PLOT", f"{plot:g}").replace("CHARACTER", f"{character:g}")
