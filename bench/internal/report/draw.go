package report

import (
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/taskmanager-go/taskmanager/bench/internal/result"
	"github.com/taskmanager-go/taskmanager/bench/internal/row"
)

var (
	// palette tells apart nine contenders also for most colour-blind people
	// (Okabe and Ito); the first is ours.
	palette = []color.RGBA{
		{213, 94, 0, 255}, {230, 159, 0, 255}, {0, 114, 178, 255}, {86, 180, 233, 255}, {0, 158, 115, 255},
		{204, 121, 167, 255}, {120, 120, 120, 255}, {0, 0, 0, 255}, {150, 110, 60, 255},
	}
	gray  = color.RGBA{225, 225, 225, 255}
	sizes = font.Length(10)
)

func newPlot(c chart) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	p := plot.New()
	p.Title.Text = c.title
	p.Title.TextStyle.Font.Size = 12
	p.Title.Padding = vg.Points(8)
	for _, t := range []*font.Length{&p.X.Label.TextStyle.Font.Size, &p.Y.Label.TextStyle.Font.Size,
		&p.X.Tick.Label.Font.Size, &p.Y.Tick.Label.Font.Size, &p.Legend.TextStyle.Font.Size} {
		*t = sizes
	}
	return p
}

// drawDots puts a dot for each metric of each contender on a logarithmic axis:
// contenders differ by powers of ten, which bars cannot show.
func drawDots(w io.Writer, c chart, all []row.Workload, set *result.Set) error {
	wl := workloadNamed(all, c.workload)
	if wl == nil {
		return errNothing
	}
	var names []string
	series := make([]plotter.XYLabels, len(c.metrics))
	for i := len(wl.Entries) - 1; i >= 0; i-- { // the axis counts from below
		e := &wl.Entries[i]
		found := false
		for j, m := range c.metrics {
			v := set.Spread(result.Cell{Workload: wl.Name, Contender: e.Contender}, m)
			if v.N == 0 || v.Median <= 0 {
				continue
			}
			found = true
			series[j].XYs = append(series[j].XYs, plotter.XY{X: v.Median, Y: float64(len(names))})
			series[j].Labels = append(series[j].Labels, m.Format(v.Median))
		}
		if found {
			names = append(names, plain(e.Title))
		}
	}
	if len(names) == 0 {
		return errNothing
	}
	p := newPlot(c)
	p.X.Label.Text = c.axis
	logAxis(&p.X)
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4
	p.Add(grid())
	if err := addDots(p, c, series); err != nil {
		return err
	}
	widen(&p.X)
	return save(w, p, vg.Points(640), vg.Points(90+28*float64(len(names))))
}

// addDots adds the dots with their figures: those of the last metric above,
// those of the one before below, so that they never cover each other.
func addDots(p *plot.Plot, c chart, series []plotter.XYLabels) error {
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(3)
	for j, dots := range series {
		if len(dots.XYs) == 0 {
			continue
		}
		s, err := plotter.NewScatter(dots.XYs)
		if err != nil {
			return err
		}
		s.GlyphStyle = draw.GlyphStyle{Color: palette[2*j], Radius: vg.Points(4), Shape: draw.CircleGlyph{}}
		l, err := plotter.NewLabels(dots)
		if err != nil {
			return err
		}
		l.Offset = vg.Point{X: vg.Points(-8), Y: vg.Points(6)}
		if j+1 < len(series) {
			l.Offset.Y = vg.Points(-13)
		}
		for i := range l.TextStyle {
			l.TextStyle[i].Font.Size = 8
		}
		p.Add(s, l)
		if len(series) > 1 {
			p.Legend.Add(c.metrics[j].Title(), s)
		}
	}
	return nil
}

// drawCurves draws the metric of each contender over the number of tasks.
func drawCurves(w io.Writer, c chart, all []row.Workload, set *result.Set) error {
	wl := workloadNamed(all, c.sizes[0].workload)
	if wl == nil {
		return errNothing
	}
	p := newPlot(c)
	p.X.Label.Text, p.Y.Label.Text = "tasks", c.axis
	logAxis(&p.X)
	logAxis(&p.Y)
	p.Add(grid())
	any := false
	for i := range wl.Entries {
		e := &wl.Entries[i]
		var xys plotter.XYs
		for _, s := range c.sizes {
			if v := set.Spread(result.Cell{Workload: s.workload, Contender: e.Contender}, c.metric); v.N > 0 {
				xys = append(xys, plotter.XY{X: s.n, Y: v.Median})
			}
		}
		if len(xys) < 2 {
			continue
		}
		any = true
		lines, points, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		lines.Color, points.Color = palette[i%len(palette)], palette[i%len(palette)]
		lines.Width, points.Radius, points.Shape = vg.Points(1.5), vg.Points(3), draw.CircleGlyph{}
		p.Add(lines, points)
		p.Legend.Add(plain(e.Title), lines, points)
	}
	if !any {
		return errNothing
	}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(3)
	widen(&p.Y)
	p.Y.Max *= 8 // room for the legend
	return save(w, p, vg.Points(640), vg.Points(400))
}

func logAxis(a *plot.Axis) {
	a.Scale = plot.LogScale{}
	a.Tick.Marker = plot.TickerFunc(logTicks)
}

// logTicks are 1, 2 and 5 times the powers of ten, in plain numbers.
func logTicks(lo, hi float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, d := range []float64{1, 2, 5} {
			v := d * math.Pow(10, e)
			if v < lo || v > hi {
				continue
			}
			label := ""
			if d == 1 || hi/lo < 1e3 {
				label = fmt.Sprintf("%.6g", v)
				if v >= 1e3 {
					label = fmt.Sprintf("%.0f", v)
				}
			}
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	return ticks
}

// widen leaves room left and right of the outermost dots.
func widen(a *plot.Axis) { a.Min, a.Max = a.Min/1.6, a.Max*1.6 }

// grid is thin, so that the dots are seen first.
func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = gray, gray
	return g
}

func save(w io.Writer, p *plot.Plot, width, height font.Length) error {
	canvas := vgsvg.New(width, height)
	// Whoever shows the file may lack the font it was laid out with, so the
	// margins leave room for wider letters.
	p.Draw(draw.Crop(draw.New(canvas), vg.Points(16), vg.Points(-20), vg.Points(4), vg.Points(-4)))
	_, err := canvas.WriteTo(w)
	return err
}
