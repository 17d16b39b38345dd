//! Rows and columns: how each stored type becomes a row of its table, independent of files.

use std::sync::Arc;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    U32,
    U64,
    F32,
    Bool,
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether cells may be empty.
    pub optional: bool,
}

/// A column without empty cells.
pub(crate) const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, optional: false }
}

/// A column with optional cells.
pub(crate) const fn optional(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, optional: true }
}

/// A type stored as a row.
pub(crate) trait Row: Sized {
    /// Name of its table and of the table's folder.
    const TABLE: &'static str;
    const COLUMNS: &'static [Column];

    /// Appends the row: one call for each column, in their order.
    fn put(&self, rows: &mut Rows);

    /// Reads the row: one call for each column, in their order. `None` if the row is invalid.
    fn take(cells: &mut Cells<'_>) -> Option<Self>;
}

/// The values of one column, one per row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    U32(Vec<Option<u32>>),
    U64(Vec<Option<u64>>),
    F32(Vec<Option<f32>>),
    Bool(Vec<Option<bool>>),
    Text(Vec<Option<Arc<str>>>),
    /// Indices into the column's words.
    Word(Vec<Option<u8>>),
}

/// Rows, column by column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rows {
    pub columns: Vec<Values>,
    /// Index of the column that receives the next value.
    next: usize,
}

impl Rows {
    /// Builds the columns of these rows.
    pub fn new<R: Row>(rows: &[R]) -> Self {
        let mut columns = Self::from_columns(R::COLUMNS.iter().map(|column| Values::empty(column.kind)).collect());
        for row in rows {
            columns.next = 0;
            row.put(&mut columns);
        }
        columns
    }

    pub fn from_columns(columns: Vec<Values>) -> Self {
        Self { columns, next: 0 }
    }

    fn column(&mut self) -> Option<&mut Values> {
        self.next += 1;
        self.columns.get_mut(self.next - 1)
    }

    /// The cells of a row, in the order of the columns.
    pub fn cells(&self, row: usize) -> Cells<'_> {
        Cells { columns: self.columns.iter(), row }
    }
}

/// The cells of a row, taken in the order of the columns.
pub(crate) struct Cells<'a> {
    columns: std::slice::Iter<'a, Values>,
    row: usize,
}

macro_rules! cell {
    ($put:ident, $take:ident, $take_optional:ident, $variant:ident, $type:ty) => {
        impl Rows {
            pub fn $put(&mut self, value: impl Into<Option<$type>>) {
                if let Some(Values::$variant(values)) = self.column() {
                    values.push(value.into());
                }
            }
        }

        impl Cells<'_> {
            pub fn $take_optional(&mut self) -> Option<Option<$type>> {
                match self.columns.next()? {
                    Values::$variant(values) => values.get(self.row).cloned(),
                    _ => None,
                }
            }

            pub fn $take(&mut self) -> Option<$type> {
                self.$take_optional()?
            }
        }
    };
}

cell!(put_u32, u32, optional_u32, U32, u32);
cell!(put_u64, u64, optional_u64, U64, u64);
cell!(put_f32, f32, optional_f32, F32, f32);
cell!(put_bool, bool, optional_bool, Bool, bool);
cell!(put_text, text, optional_text, Text, Arc<str>);
cell!(put_word, word, optional_word, Word, u8);

impl Values {
    /// An empty column of this type.
    pub fn empty(kind: Kind) -> Self {
        match kind {
            Kind::U32 => Self::U32(Vec::new()),
            Kind::U64 => Self::U64(Vec::new()),
            Kind::F32 => Self::F32(Vec::new()),
            Kind::Bool => Self::Bool(Vec::new()),
            Kind::Text => Self::Text(Vec::new()),
            Kind::Word(_) => Self::Word(Vec::new()),
        }
    }
}
