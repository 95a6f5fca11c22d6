(function () {
  "use strict";
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function theme(layout) {
    var style = getComputedStyle(document.documentElement);
    var ink = style.getPropertyValue("--ink").trim();
    var line = style.getPropertyValue("--line").trim();
    var soft = style.getPropertyValue("--soft").trim();
    var paper = style.getPropertyValue("--card").trim();
    layout = JSON.parse(JSON.stringify(layout));
    layout.font = { color: ink, size: 13, family: getComputedStyle(document.body).fontFamily };
    layout.hoverlabel = { bgcolor: paper, bordercolor: line, font: { color: ink }, align: "left" };
    layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink };
    layout.autosize = true;
    delete layout.height;
    Object.keys(layout).forEach(function (key) {
      if (/^[xy]axis\d*$/.test(key)) {
        layout[key].gridcolor = line;
        layout[key].linecolor = line;
        layout[key].zerolinecolor = line;
      }
    });
    return layout;
  }
  function draw() {
    document.querySelectorAll("script[data-figure]").forEach(function (source) {
      var figure = JSON.parse(source.textContent);
      Plotly.newPlot(source.dataset.figure, figure.data, theme(figure.layout), {
        responsive: true, displaylogo: false,
        modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
        toImageButtonOptions: { format: "svg" },
      });
    });
  }
  draw();
  dark.addEventListener("change", draw);
})();
