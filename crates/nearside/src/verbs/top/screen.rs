//! The screen of `nearside top`: its rows, their order, and the keys.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table};
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
/// The first column gets this width, if its text needs it, before further columns are shown.
const WIDEST_FIRST: u16 = 24;

const KEYS: &str = " p processes  H threads  o objects  F6 > order  / filter  \u{2191}\u{2193} scroll  q quit";

impl Default for Screen {
    fn default() -> Self {
        let (kind, order) = (TopKind::Process, TopOrder::default());
        Self { kind, order, filter: String::new(), typing: false, first: 0, page: 1 }
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
        match key.code {
            KeyCode::Char('q') | KeyCode::F(10) => return Wish::Quit,
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
        let lines = |count: usize, most: u16| Constraint::Length(u16::try_from(count).unwrap_or(most).min(most));
        let parts = [
            Constraint::Length(1),
            lines(report.nodes.len() + 1, 17),
            Constraint::Length(1),
            Constraint::Min(2),
            lines(report.notes.len(), 5),
            Constraint::Length(1),
        ];
        let [summary, memory, _, rows, told, keys] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(Paragraph::new(report.summary()), summary);
        let heading = TopNode::HEADING.map(str::to_owned);
        let cells: Vec<[String; 7]> = report.nodes.iter().take(16).map(TopNode::cells).collect();
        frame.render_widget(table(&heading, &cells, None, memory.width), memory);
        let chosen = report.chosen(self.kind, self.order, &self.filter);
        self.page = usize::from(rows.height.saturating_sub(1)).max(1);
        self.first = self.first.min(chosen.len().saturating_sub(self.page));
        let cells: Vec<[String; 8]> = chosen.iter().skip(self.first).take(self.page).map(|row| row.cells()).collect();
        let mut heading = TopRow::HEADING.map(str::to_owned);
        let sorted = heading.iter().position(|heading| heading == self.order.word());
        if let Some(first) = heading.first_mut() {
            *first = format!("{} ({})", kind_word(self.kind), chosen.len());
        }
        frame.render_widget(table(&heading, &cells, sorted, rows.width), rows);
        let lines: Vec<Line<'_>> = report.notes.iter().take(5).map(|note| Line::from(note.as_str())).collect();
        frame.render_widget(Paragraph::new(lines).style(Style::new().add_modifier(Modifier::DIM)), told);
        let line = match (self.typing, self.filter.as_str()) {
            (true, filter) => format!(" filter: {filter}_"),
            (false, "") => KEYS.to_owned(),
            (false, filter) => format!("{KEYS}  Esc all (only {filter})"),
        };
        frame.render_widget(Paragraph::new(line).style(Style::new().add_modifier(Modifier::REVERSED)), keys);
    }
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
    let columns = columns_that_fit(&widths, sorted, room);
    let kept = |row: &[String; N]| columns.iter().filter_map(|&column| row.get(column).cloned()).collect::<Vec<_>>();
    let constraint = |&column: &usize| {
        if column == 0 { Constraint::Fill(1) } else { Constraint::Length(widths.get(column).copied().unwrap_or(0)) }
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let titles = kept(heading).into_iter().zip(&columns).map(|(text, &column)| {
        let style = if sorted == Some(column) { bold.add_modifier(Modifier::REVERSED) } else { bold };
        ratatui::widgets::Cell::from(text).style(style)
    });
    Table::new(cells.iter().map(|row| Row::new(kept(row))).collect::<Vec<_>>(), columns.iter().map(constraint))
        .header(Row::new(titles))
        .column_spacing(SPACING)
}

/// The columns that leave room for the first one. The one that rows are sorted by stays longest.
fn columns_that_fit(widths: &[u16], sorted: Option<usize>, room: u16) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..widths.len()).collect();
    let needed = |column: usize| {
        let width = widths.get(column).copied().unwrap_or(0);
        u32::from(if column == 0 { width.min(WIDEST_FIRST) } else { width.saturating_add(SPACING) })
    };
    while columns.iter().map(|&column| needed(column)).sum::<u32>() > u32::from(room) {
        let last = columns.iter().rposition(|&column| column != 0 && sorted != Some(column));
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
        assert_eq!(columns_that_fit(&widths, None, 45), [0, 1, 2, 3]);
        assert_eq!(columns_that_fit(&widths, None, 44), [0, 1, 2]);
        assert_eq!(columns_that_fit(&widths, Some(3), 31), [0, 3]);
        assert_eq!(columns_that_fit(&widths, Some(3), 0), [0, 3]);
    }

    #[test]
    fn no_terminal_is_too_small() {
        for (columns, lines) in [(1, 1), (20, 3), (300, 2), (5, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
            terminal.draw(|frame| Screen::default().draw(frame, &report())).unwrap();
        }
    }
}
