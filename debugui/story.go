package debugui

// Story is what a page is shown for, such as a demonstration: the page begins with it. All of it is text of the host's;
// each is cut to 300 bytes.
type Story struct {
	About    string    // a sentence
	Chapters []Chapter // in their order, at most 16
}

// Chapter is a part of a Story: some measurements of two or more columns, which may be under way.
type Chapter struct {
	Title string
	About string // a sentence: what is compared, and how
	// Columns are compared. A column has its state in States, and Done of Of its steps; both may be shorter or nil.
	Columns []Column
	// Rows have a value for each column, in words; a missing or empty one is shown as a dash.
	Rows []Row
	// Verdict says who won and by how much; "" before it is known.
	Verdict string
}

// Column is a part of a Chapter that runs by itself.
type Column struct {
	Name     string
	State    ColumnState
	Done, Of int // steps
}

// ColumnState is how far a Column is.
type ColumnState uint8

// The states of a Column.
const (
	Waiting ColumnState = iota
	Running
	Over
)

// Row is one measurement.
type Row struct {
	Label  string
	Values []string
	// Better is the factor by which the last column is better than the first, as in "9.4x better", or another word;
	// "" is no word.
	Better string
}

type storyState struct {
	About    string         `json:"about"`
	Chapters []chapterState `json:"chapters"`
}

type chapterState struct {
	Title   string        `json:"title"`
	About   string        `json:"about"`
	Columns []columnState `json:"columns"`
	Rows    []rowState    `json:"rows"`
	Verdict string        `json:"verdict"`
}

type columnState struct {
	Name  string `json:"name"`
	State string `json:"state"` // waiting, running, over
	Done  int    `json:"done"`
	Of    int    `json:"of"`
}

type rowState struct {
	Label  string   `json:"label"`
	Values []string `json:"values"`
	Better string   `json:"better"`
}

const (
	maxChapters = 16
	maxStory    = 32 // columns and rows of a chapter
	storyText   = 300
)

// Present shows s at the top of the page, in place of the one before. The page keeps a copy. A Story without chapters
// shows none.
func (p *Page) Present(s Story) {
	var out *storyState
	if len(s.Chapters) > 0 {
		out = &storyState{About: clip(s.About, storyText), Chapters: []chapterState{}}
	}
	for _, c := range s.Chapters[:min(len(s.Chapters), maxChapters)] {
		v := chapterState{Title: clip(c.Title, storyText), About: clip(c.About, storyText),
			Verdict: clip(c.Verdict, storyText), Columns: []columnState{}, Rows: []rowState{}}
		for _, col := range c.Columns[:min(len(c.Columns), maxStory)] {
			v.Columns = append(v.Columns, columnState{clip(col.Name, storyText), columnStates[min(col.State, Over)],
				max(col.Done, 0), max(col.Of, 0)})
		}
		for _, r := range c.Rows[:min(len(c.Rows), maxStory)] {
			row := rowState{Label: clip(r.Label, storyText), Better: clip(r.Better, storyText), Values: []string{}}
			for _, value := range r.Values[:min(len(r.Values), maxStory)] {
				row.Values = append(row.Values, clip(value, storyText))
			}
			v.Rows = append(v.Rows, row)
		}
		out.Chapters = append(out.Chapters, v)
	}
	p.story.Store(out)
}

var columnStates = [...]string{"waiting", "running", "over"}
