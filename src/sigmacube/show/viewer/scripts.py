"""What runs in the browser: saving, swiping, flicker, keyboard; and the frame of the page."""

from __future__ import annotations

from sigmacube.show.look import CSS

# One name below the other where two do not fit.
LEGEND = """
const narrow = cb_obj.inner_width < 420
legend.ncols = narrow ? 1 : 3
legend.spacing = narrow ? 0 : 12
"""

SAVE_TEXT = """
if (box.data.text.length == 0) return
const link = document.createElement("a")
const blob = new Blob([box.data.text[0]], {type: "text/csv;charset=utf-8"})
link.href = URL.createObjectURL(blob)
link.download = box.data.name[0]
link.click()
setTimeout(() => URL.revokeObjectURL(link.href), 1000)
"""

SAVE_PNG = """
const canvases = models.map((model) => {
  return cb_context.index.find_one(model).export("png", true).canvas
})
const gap = 20, head = 46
const [image, ...panels] = canvases
const out = document.createElement("canvas")
out.width = image.width + Math.max(...panels.map((c) => c.width)) + 3 * gap
const tall = panels.reduce((sum, c) => sum + c.height, 0)
out.height = Math.max(image.height, tall) + head + gap
const pen = out.getContext("2d")
pen.fillStyle = "white"
pen.fillRect(0, 0, out.width, out.height)
pen.fillStyle = "#222"
pen.font = "bold 20px sans-serif"
pen.fillText(title, gap, 30)
pen.drawImage(image, gap, head)
let y = head
for (const c of panels) { pen.drawImage(c, image.width + 2 * gap, y); y += c.height }
out.toBlob((blob) => {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(blob)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
})
"""

# The second picture is drawn right of the line: left of it its pixels are made transparent here,
# without asking the server.
SWIPE = """
if (over.data.full.length == 0) return
const full = over.data.full[0], shown = over.data.rgba[0]
const [rows, cols] = full.shape
const share = swipe.value / 100
const first = Math.round(share * cols)
for (let r = 0; r < rows; r++) {
  for (let c = 0; c < cols; c++) {
    const at = r * cols + c
    shown[at] = c < first ? 0 : full[at]
  }
}
line.location = over.data.x[0] + share * over.data.dw[0]
line.visible = share > 0 && share < 1
over.change.emit()
"""

# Twice in three seconds: slow enough for everybody (three flashes a second are the limit).
FLICKER = """
if (window.sigmacube_flicker) {
  clearInterval(window.sigmacube_flicker)
  window.sigmacube_flicker = null
  button.label = "Flicker"
  swipe.value = 50
} else {
  window.sigmacube_flicker = setInterval(() => { swipe.value = swipe.value == 0 ? 100 : 0 }, 750)
  button.label = "Stop"
}
"""

KEYS = """
const model = (name) => Bokeh.documents[0].get_model_by_name(name)
const views = {o: ["observed_rgb", "observed"], d: ["rgb", "band"], r: ["removed"], s: ["sigma"],
               z: ["z"]}
const press = (name) => {
  for (const view of Bokeh.index.query((v) => v.model.name == name)) {
    view.shadow_el.querySelector("button").click()
  }
}
const has = (kind) => Object.values(model("kind").options).flat().some(([key]) => key == kind)
document.addEventListener("keydown", (event) => {
  const target = event.composedPath()[0]
  const busy = ["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName)
  const handle = target.classList && target.classList.contains("noUi-handle")
  if (busy || handle || event.ctrlKey || event.metaKey || event.altKey) return
  const key = event.key
  const band = model("band"), kind = model("kind"), swipe = model("swipe")
  if (key in views) {
    // With one band on show, its observed version, and likewise in colour.
    const single = !["rgb", "observed_rgb"].includes(kind.value)
    const wanted = views[key][single ? views[key].length - 1 : 0]
    if (has(wanted)) kind.value = wanted
  } else if (key == "ArrowRight" || key == "ArrowLeft") {
    const next = band.value + (key == "ArrowRight" ? 1 : -1)
    band.value = Math.min(Math.max(next, band.start), band.end)
  } else if (key == "f") {
    if (swipe.visible) swipe.value = swipe.value == 0 ? 100 : 0
  } else if (key == "[" || key == "]") {
    if (swipe.visible) swipe.value = Math.min(Math.max(swipe.value + (key == "]" ? 5 : -5), 0), 100)
  } else if (key == "p") {
    press("pin")
  } else if (key == "c") {
    press("clear")
  } else {
    return
  }
  event.preventDefault()
})
"""

TEMPLATE = (
    """
{% block postamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>"""
    + CSS
    + """
  html, body { margin: 0; }
  body { padding: 10px 14px; font-size: 14px; display: block !important; max-width: 1800px; }
</style>
<script>
window.addEventListener("load", () => {"""
    + KEYS
    + """})
</script>
{% endblock %}
"""
)
