//! The screen of `nearside top`: its rows, their order, and the keys.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use report::{TopKind, TopNode, TopOrder, TopReport, TopRow};
use unicode_width::UnicodeWidthStr;

/// State of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Screen {
    kind: TopKind,
    order: TopOrder,
    filter: String,
    /// Whether keys go into the filter.
    typing: bool,
    /// Whether the keys are shown, instead of the rows.
    helping: bool,
    /// Index of the row at the top.
    first: usize,
    /// Rows that fit on the screen at the last draw.
    page: usize,
}

/// Result of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Continue with the current state.
    Stay,
    /// Quit.
    Quit,
}

/// Columns of the screen between two columns of a table.
const SPACING: u16 = 2;
/// Most nodes on the screen: above 16, the last line says how many more there are.
const MOST_NODES: usize = 16;
/// The first column gets this width, if its text needs it, before further columns are shown.
const WIDEST_FIRST: u16 = 24;

/// The last line.
const KEYS: &str = " ? help  p processes  H threads  o objects  F6 > order  / filter  q quit";
/// All keys, for `?`.
const HELP: [(&str, &str); 8] = [
    ("p  H  o", "processes, threads, objects"),
    ("Tab", "the next of these"),
    ("F6 >  <", "the next order of rows, the one before"),
    ("/", "a filter: rows whose name or number has this text; Enter ends it"),
    ("Esc", "no filter"),
    ("\u{2191} \u{2193} PgUp PgDn Home End", "scroll"),
    ("?", "this help; any key ends it"),
    ("q  F10  Ctrl-C", "quit"),
];
/// A footnote may take one of this many lines of the screen, and two on any screen.
const LINES_A_FOOTNOTE: usize = 12;
const LEAST_FOOTNOTES: usize = 2;
/// Columns of the bar of a share.
const BAR: usize = 4;
/// Eighths of a column.
const EIGHTHS: [char; 8] = [' ', '\u{258f}', '\u{258e}', '\u{258d}', '\u{258c}', '\u{258b}', '\u{258a}', '\u{2589}'];

impl Default for Screen {
    fn default() -> Self {
        let (kind, order) = (TopKind::Process, TopOrder::default());
        Self { kind, order, filter: String::new(), typing: false, helping: false, first: 0, page: 1 }
    }
}

impl Screen {
    /// Handles a key, with htop's bindings.
    pub fn key(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Wish::Quit;
        }
        if self.typing {
            self.type_key(key.code);
            return Wish::Stay;
        }
        if self.helping && !matches!(key.code, KeyCode::Char('q') | KeyCode::F(10)) {
            self.helping = false;
            return Wish::Stay;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::F(10) => return Wish::Quit,
            KeyCode::Char('?') | KeyCode::F(1) => self.helping = true,
            KeyCode::Char('p') => self.show(TopKind::Process),
            KeyCode::Char('H' | 't') => {
                let back = self.kind == TopKind::Thread;
                self.show(if back { TopKind::Process } else { TopKind::Thread });
            }
            KeyCode::Char('o') => self.show(TopKind::Object),
            KeyCode::Tab => self.show(match self.kind {
                TopKind::Process => TopKind::Thread,
                TopKind::Thread => TopKind::Object,
                TopKind::Object => TopKind::Process,
            }),
            KeyCode::F(6) | KeyCode::Char('>' | '.') => self.turn_order(1),
            KeyCode::Char('<' | ',') => self.turn_order(TopOrder::ALL.len() - 1),
            KeyCode::Char('/') | KeyCode::F(3 | 4) => self.typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::Down => self.first = self.first.saturating_add(1),
            KeyCode::PageUp => self.first = self.first.saturating_sub(self.page),
            KeyCode::PageDown => self.first = self.first.saturating_add(self.page),
            KeyCode::Home => self.first = 0,
            KeyCode::End => self.first = usize::MAX,
            _ => {}
        }
        Wish::Stay
    }

    fn type_key(&mut self, key: KeyCode) {
        self.first = 0;
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => (self.typing, self.filter) = (false, String::new()),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
    }

    fn show(&mut self, kind: TopKind) {
        (self.kind, self.first) = (kind, 0);
    }

    fn turn_order(&mut self, by: usize) {
        let at = TopOrder::ALL.iter().position(|order| *order == self.order).unwrap_or(0);
        self.order = TopOrder::ALL.get((at + by) % TopOrder::ALL.len()).copied().unwrap_or_default();
    }

    /// Draws a report.
    pub fn draw(&mut self, frame: &mut Frame<'_>, report: &TopReport) {
        let size = frame.area();
        let footnotes = report.footnotes(report::Layout::new(size.width.into(), false));
        if self.helping {
            return draw_help(frame, &footnotes);
        }
        let footnotes = shortened(footnotes, (usize::from(size.height) / LINES_A_FOOTNOTE).max(LEAST_FOOTNOTES));
        let lines = |count: usize, most: u16| Constraint::Length(u16::try_from(count).unwrap_or(most).min(most));
        let parts = [
            Constraint::Length(1),
            lines(report.nodes.len() + 1, MOST_NODES as u16 + 1),
            Constraint::Length(1),
            Constraint::Min(2),
            lines(footnotes.len(), u16::MAX),
            Constraint::Length(1),
        ];
        let [summary, memory, _, rows, below, keys] = Layout::vertical(parts).areas(size);
        frame.render_widget(Paragraph::new(report.summary()), summary);
        let heading = TopNode::HEADING.map(str::to_owned);
        let mut cells: Vec<[String; 7]> = report.nodes.iter().map(node_cells).collect();
        if cells.len() > MOST_NODES {
            let left = cells.split_off(MOST_NODES - 1).len();
            cells.push(std::array::from_fn(|at| if at == 0 { format!("and {left} more") } else { String::new() }));
        }
        frame.render_widget(table(&heading, &cells, None, memory.width), memory);
        self.draw_rows(frame, report, rows);
        frame.render_widget(dimmed(&footnotes), below);
        let line = match (self.typing, self.filter.as_str()) {
            (true, filter) => format!(" filter: {filter}_"),
            (false, "") => KEYS.to_owned(),
            (false, filter) => format!("{KEYS}  Esc all (only {filter})"),
        };
        frame.render_widget(last_line(line), keys);
    }

    fn draw_rows(&mut self, frame: &mut Frame<'_>, report: &TopReport, area: Rect) {
        let chosen = report.chosen(self.kind, self.order, &self.filter);
        self.page = usize::from(area.height.saturating_sub(1)).max(1);
        self.first = self.first.min(chosen.len().saturating_sub(self.page));
        let shown = chosen.iter().skip(self.first).take(self.page);
        let cells: Vec<[String; 8]> = shown.map(|row| row_cells(row)).collect();
        let mut heading = TopRow::HEADING.map(str::to_owned);
        let sorted = heading.iter().position(|heading| heading == self.order.word());
        if let Some(first) = heading.first_mut() {
            *first = format!("{} ({})", kind_word(self.kind), chosen.len());
        }
        frame.render_widget(table(&heading, &cells, sorted, area.width), area);
    }
}

/// The keys, and all footnotes.
fn draw_help(frame: &mut Frame<'_>, footnotes: &[String]) {
    let [above, keys] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    let widest = HELP.iter().map(|(key, _)| key.width()).max().unwrap_or(0);
    let help = HELP.iter().map(|(key, meaning)| format!("{key:widest$}  {meaning}"));
    let lines: Vec<String> = help.chain([String::new()]).chain(footnotes.iter().cloned()).collect();
    frame.render_widget(Paragraph::new(lines.iter().map(|line| Line::from(line.as_str())).collect::<Vec<_>>()), above);
    frame.render_widget(last_line(" any key: back  q quit".to_owned()), keys);
}

/// The first of these lines, with the number of the others.
fn shortened(mut lines: Vec<String>, most: usize) -> Vec<String> {
    if lines.len() > most {
        let more = lines.split_off(most.saturating_sub(1)).len();
        lines.push(format!("{more} more lines: ?"));
    }
    lines
}

fn dimmed(lines: &[String]) -> Paragraph<'_> {
    let lines: Vec<Line<'_>> = lines.iter().map(|line| Line::from(line.as_str())).collect();
    Paragraph::new(lines).style(Style::new().add_modifier(Modifier::DIM))
}

fn last_line<'a>(text: String) -> Paragraph<'a> {
    Paragraph::new(text).style(Style::new().add_modifier(Modifier::REVERSED))
}

/// The cells of a node, with a bar of its share of the accesses.
fn node_cells(node: &TopNode) -> [String; 7] {
    let mut cells = node.cells();
    cells[3] = with_bar(node.share, &cells[3]);
    cells
}

/// The cells of a row, with a bar of its remote cost.
fn row_cells(row: &TopRow) -> [String; 8] {
    let mut cells = row.cells();
    cells[2] = with_bar(row.remote_cost, &cells[2]);
    cells
}

/// A share, 0 to 1, as a bar before its text.
fn with_bar(share: Option<f64>, text: &str) -> String {
    let eighths = (share.unwrap_or(0.0).clamp(0.0, 1.0) * (BAR * EIGHTHS.len()) as f64).round() as usize;
    let (whole, rest) = (eighths / EIGHTHS.len(), eighths % EIGHTHS.len());
    let end = if whole < BAR { EIGHTHS[rest].to_string() } else { String::new() };
    format!("{:<BAR$} {text:>7}", "\u{2588}".repeat(whole) + &end)
}

fn kind_word(kind: TopKind) -> &'static str {
    match kind {
        TopKind::Process => "processes",
        TopKind::Thread => "threads",
        TopKind::Object => "objects",
    }
}

/// The first column takes the remaining width. On a narrow screen, the last columns are left out for it.
fn table<'a, const N: usize>(
    heading: &[String; N],
    cells: &[[String; N]],
    sorted: Option<usize>,
    room: u16,
) -> Table<'a> {
    let width = |column: usize| {
        let all = std::iter::once(heading).chain(cells).filter_map(|row| row.get(column));
        u16::try_from(all.map(|cell| cell.width()).max().unwrap_or(0)).unwrap_or(u16::MAX)
    };
    let widths: Vec<u16> = (0..N).map(width).collect();
    let is_empty = |column: usize| cells.iter().all(|row| row.get(column).is_some_and(|cell| cell.trim() == "-"));
    let columns = columns_that_fit(&widths, sorted, room, is_empty);
    let kept = |row: &[String; N]| columns.iter().filter_map(|&column| row.get(column).cloned()).collect::<Vec<_>>();
    let constraint = |&column: &usize| {
        if column == 0 { Constraint::Fill(1) } else { Constraint::Length(widths.get(column).copied().unwrap_or(0)) }
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    // As in a pipe: names to the left, numbers to the right.
    let cell = |(place, text): (usize, String)| {
        let text = Text::from(text);
        Cell::from(if place == 0 { text } else { text.right_aligned() })
    };
    let titles = kept(heading).into_iter().enumerate().map(cell).zip(&columns).map(|(title, &column)| {
        title.style(if sorted == Some(column) { bold.add_modifier(Modifier::REVERSED) } else { bold })
    });
    let rows: Vec<Row<'_>> = cells.iter().map(|row| Row::new(kept(row).into_iter().enumerate().map(cell))).collect();
    Table::new(rows, columns.iter().map(constraint)).header(Row::new(titles)).column_spacing(SPACING)
}

/// The columns that leave room for the first one. Those without a value are left out first, then the last ones; the one
/// that rows are sorted by stays longest.
fn columns_that_fit(widths: &[u16], sorted: Option<usize>, room: u16, is_empty: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..widths.len()).collect();
    let needed = |column: usize| {
        let width = widths.get(column).copied().unwrap_or(0);
        u32::from(if column == 0 { width.min(WIDEST_FIRST) } else { width.saturating_add(SPACING) })
    };
    while columns.iter().map(|&column| needed(column)).sum::<u32>() > u32::from(room) {
        let may_go = |column: usize| column != 0 && sorted != Some(column);
        let empty = columns.iter().rposition(|&column| may_go(column) && is_empty(column));
        let last = empty.or_else(|| columns.iter().rposition(|&column| may_go(column)));
        // The first column and that of the order are shown on any screen.
        let Some(last) = last else { break };
        columns.remove(last);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::NodeId;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn row(kind: TopKind, number: u32, name: &str, remote_cost: f64) -> TopRow {
        TopRow {
            kind,
            pid: number,
            tid: None,
            name: name.to_owned(),
            memory_bytes: None,
            samples: 10,
            accesses_per_s: Some(1e6 / f64::from(number)),
            local_access_ratio: Some(0.25),
            latency_mean_ns: Some(180.0),
            remote_cost: Some(remote_cost),
            memory_on: [(NodeId(0), 0.75), (NodeId(1), 0.25)].into(),
        }
    }

    fn report() -> TopReport {
        let node = |id| TopNode {
            node: NodeId(id),
            memory_bytes: 1 << 30,
            free_bytes: 1 << 29,
            accesses_per_s: Some(5e5),
            share: Some(0.5),
            load: None,
            taken_local_per_s: 10.0,
            taken_remote_per_s: 5.0,
        };
        let mut rows: Vec<TopRow> =
            (1..40).map(|n| row(TopKind::Process, n, &format!("program-{n}"), 1.0 / f64::from(n))).collect();
        rows.push(row(TopKind::Object, 7, "table, 64.0 MiB", 0.9));
        let notes = vec!["no PMU here".to_owned()];
        TopReport {
            interval_s: 2.0,
            source: Some(trace::Source::HintFault),
            samples: 400,
            nodes: vec![node(0), node(1)],
            rows,
            notes,
            ..TopReport::default()
        }
    }

    fn picture(screen: &mut Screen) -> String {
        picture_of_width(screen, 100)
    }

    fn picture_of_width(screen: &mut Screen, columns: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, 16)).unwrap();
        terminal.draw(|frame| screen.draw(frame, &report())).unwrap();
        text_of(&terminal, columns)
    }

    fn text_of(terminal: &Terminal<TestBackend>, columns: u16) -> String {
        let buffer = terminal.backend().buffer();
        let cells: Vec<&str> = buffer.content().iter().map(ratatui::buffer::Cell::symbol).collect();
        cells.chunks(columns.into()).map(|line| line.concat().trim_end().to_owned() + "\n").collect()
    }

    fn press(screen: &mut Screen, keys: &[KeyCode]) -> Vec<Wish> {
        keys.iter().map(|key| screen.key(KeyEvent::from(*key))).collect()
    }

    #[test]
    fn keys_choose_rows_and_their_order() {
        use KeyCode::{Backspace, Char, Down, End, Enter, Esc, F, Home};
        let mut screen = Screen::default();
        let first = picture(&mut screen);
        assert!(first.starts_with("400 samples in 2.0 s") && first.contains("processes (39)"), "{first}");
        assert!(first.contains("program-1 ") && first.contains("0: 75 %, 1: 25 %") && first.contains("no PMU"));
        press(&mut screen, &[Down]);
        assert!(!picture(&mut screen).contains("program-1 "));
        press(&mut screen, &[End]);
        assert!(picture(&mut screen).contains("program-39"));
        press(&mut screen, &[Home, Char('o')]);
        assert!(picture(&mut screen).contains("table, 64.0 MiB"));
        press(&mut screen, &[Char('H')]);
        assert!(picture(&mut screen).contains("threads (0)"));
        press(&mut screen, &[Char('H'), F(6), F(6), Char('/'), Char('-'), Char('3'), Char('x'), Backspace]);
        assert_eq!((screen.order, screen.filter.as_str()), (TopOrder::Locality, "-3"));
        assert!(picture(&mut screen).contains("filter: -3_"));
        press(&mut screen, &[Enter]);
        assert!(picture(&mut screen).contains("processes (11)"));
        assert_eq!(press(&mut screen, &[Esc, Char('q')]), [Wish::Stay, Wish::Quit]);
        let control = KeyEvent::new(Char('c'), KeyModifiers::CONTROL);
        assert_eq!((screen.key(control), screen.filter.as_str()), (Wish::Quit, ""));
    }

    #[test]
    fn a_question_mark_shows_the_keys_and_every_footnote() {
        let mut screen = Screen::default();
        assert!(picture(&mut screen).contains(" ? help  p processes"));
        press(&mut screen, &[KeyCode::Char('?')]);
        let help = picture(&mut screen);
        for part in ["F6 >  <", "scroll", "q  F10  Ctrl-C", "no PMU here", "any key: back"] {
            assert!(help.contains(part), "{help}");
        }
        assert!(!help.contains("program-1"), "{help}");
        assert_eq!(press(&mut screen, &[KeyCode::Down]), [Wish::Stay]);
        assert!(picture(&mut screen).contains("program-1 "));
        assert_eq!(press(&mut screen, &[KeyCode::Char('?'), KeyCode::Char('q')]), [Wish::Stay, Wish::Quit]);
    }

    #[test]
    fn footnotes_take_two_of_24_lines() {
        let lines = |count: usize| (0..count).map(|line| line.to_string()).collect::<Vec<_>>();
        assert_eq!(shortened(lines(2), 2), ["0", "1"]);
        assert_eq!(shortened(lines(5), 2), ["0", "4 more lines: ?"]);
        let report = TopReport { notes: vec!["a note of several words".repeat(9)], ..report() };
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| Screen::default().draw(frame, &report)).unwrap();
        let text = text_of(&terminal, 80);
        let end: Vec<&str> = text.lines().rev().take(4).collect();
        assert!(end[0].starts_with(" ? help") && end[1].ends_with("more lines: ?"), "{text}");
        assert!(end[2].starts_with("a note of") && end[3].starts_with("program-"), "{text}");
    }

    #[test]
    fn numbers_end_at_the_same_column_and_shares_have_bars() {
        let text = picture_of_width(&mut Screen::default(), 120);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        let end = |line: &str, word: &str| line.split(word).next().unwrap().width() + word.width();
        let heading = end(line("processes"), "accesses/s");
        assert_eq!([end(line("program-1 "), "1.00 M"), end(line("program-3 "), "333 k")], [heading; 2], "{text}");
        assert!(line("program-1 ").contains("\u{2588}\u{2588}\u{2588}\u{2588} 100.0 %"), "{text}");
        assert!(line("program-2 ").contains("\u{2588}\u{2588}    50.0 %"), "{text}");
        assert_eq!(with_bar(Some(0.3), "30.0 %"), "\u{2588}\u{258e}    30.0 %");
        assert_eq!((with_bar(None, "-"), with_bar(Some(7.0), "x").width()), ("           -".to_owned(), 12));
    }

    #[test]
    fn names_and_the_sorted_column_are_shown_on_narrow_screens() {
        for columns in [120, 80, 60, 40] {
            let mut screen = Screen::default();
            let text = picture_of_width(&mut screen, columns);
            let shown = ["node 0", "processes (39)", "program-1 ", "program-2 ", screen.order.word()];
            assert!(shown.iter().all(|shown| text.contains(shown)), "{columns} columns:\n{text}");
        }
    }

    #[test]
    fn columns_give_way_from_the_right() {
        let widths = [30, 5, 5, 5];
        let fit = |sorted, room| columns_that_fit(&widths, sorted, room, |_| false);
        assert_eq!(fit(None, 45), [0, 1, 2, 3]);
        assert_eq!(fit(None, 44), [0, 1, 2]);
        assert_eq!(fit(Some(3), 31), [0, 3]);
        assert_eq!(fit(Some(3), 0), [0, 3]);
        assert_eq!(columns_that_fit(&widths, None, 44, |column| column == 1), [0, 2, 3]);
    }

    #[test]
    fn no_terminal_is_too_small() {
        for (columns, lines) in [(1, 1), (20, 3), (300, 2), (5, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
            terminal.draw(|frame| Screen::default().draw(frame, &report())).unwrap();
        }
    }
}
