//! Rows and columns: how each stored type becomes a row of its table, independent of files.

use crate::StackId;
use machine::{CpuId, NodeId, Pid, Tid};
use std::fmt::Write;
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

impl Column {
    /// The column of a type's values.
    pub const fn new<C: Cell>(name: &'static str) -> Self {
        Self { name, kind: C::KIND, optional: C::OPTIONAL }
    }
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
        let mut columns =
            Self::from_columns(R::COLUMNS.iter().map(|column| Values::without_any(column.kind, 0)).collect());
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

/// The type of a required cell. `Option` of it is the type of an optional one.
pub(crate) trait Value: Sized {
    const KIND: Kind;

    /// Appends the value, or an empty cell, to the next column.
    fn put(value: Option<&Self>, rows: &mut Rows);

    /// Reads the next cell, which may be empty.
    fn take(cells: &mut Cells<'_>) -> Result<Option<Self>, Invalid>;
}

/// A cell of another type, or an unknown word.
#[derive(Debug)]
pub(crate) struct Invalid;

/// The type of a cell.
pub(crate) trait Cell: Sized {
    const KIND: Kind;
    const OPTIONAL: bool;

    fn put(&self, rows: &mut Rows);

    fn take(cells: &mut Cells<'_>) -> Option<Self>;
}

impl<V: Value> Cell for V {
    const KIND: Kind = V::KIND;
    const OPTIONAL: bool = false;

    fn put(&self, rows: &mut Rows) {
        Value::put(Some(self), rows);
    }

    fn take(cells: &mut Cells<'_>) -> Option<Self> {
        Value::take(cells).ok()?
    }
}

impl<V: Value> Cell for Option<V> {
    const KIND: Kind = V::KIND;
    const OPTIONAL: bool = true;

    fn put(&self, rows: &mut Rows) {
        Value::put(self.as_ref(), rows);
    }

    fn take(cells: &mut Cells<'_>) -> Option<Self> {
        Value::take(cells).ok()
    }
}

macro_rules! value {
    ($type:ty, $variant:ident) => {
        impl Value for $type {
            const KIND: Kind = Kind::$variant;

            fn put(value: Option<&Self>, rows: &mut Rows) {
                if let Some(Values::$variant(values)) = rows.column() {
                    values.push(value.cloned());
                }
            }

            fn take(cells: &mut Cells<'_>) -> Result<Option<Self>, Invalid> {
                match cells.columns.next() {
                    Some(Values::$variant(values)) => values.get(cells.row).cloned().ok_or(Invalid),
                    _ => Err(Invalid),
                }
            }
        }
    };
}

value!(u32, U32);
value!(u64, U64);
value!(f32, F32);
value!(bool, Bool);
value!(Arc<str>, Text);

/// Stores numbers of their own type as plain ones.
macro_rules! ids {
    ($($id:ident),*) => {$(
        impl Value for $id {
            const KIND: Kind = Kind::U32;

            fn put(value: Option<&Self>, rows: &mut Rows) {
                Value::put(value.map(|id| &id.0), rows);
            }

            fn take(cells: &mut Cells<'_>) -> Result<Option<Self>, Invalid> {
                Ok(<u32 as Value>::take(cells)?.map(Self))
            }
        }
    )*};
}

ids!(CpuId, NodeId, Pid, StackId, Tid);

/// Build IDs are stored as text.
impl Value for Arc<[u8]> {
    const KIND: Kind = Kind::Text;

    fn put(value: Option<&Self>, rows: &mut Rows) {
        Value::put(value.map(|bytes| hexadecimal(bytes)).as_ref(), rows);
    }

    fn take(cells: &mut Cells<'_>) -> Result<Option<Self>, Invalid> {
        <Arc<str> as Value>::take(cells)?.map(|text| of_hexadecimal(&text).ok_or(Invalid)).transpose()
    }
}

/// A build ID in hexadecimal, as other tools print it.
pub(crate) fn hexadecimal(bytes: &[u8]) -> Arc<str> {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

/// Parses a hexadecimal build ID.
fn of_hexadecimal(text: &str) -> Option<Arc<[u8]>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

/// Stores enumerations as words: the names of the variants as `strum` has them.
macro_rules! words {
    ($($word:ty),*) => {$(
        impl $crate::table::Value for $word {
            const KIND: $crate::table::Kind = $crate::table::Kind::Word(<Self as strum::VariantNames>::VARIANTS);

            fn put(value: Option<&Self>, rows: &mut $crate::table::Rows) {
                rows.put_word(value.map(|word| *word as u8));
            }

            fn take(cells: &mut $crate::table::Cells<'_>) -> Result<Option<Self>, $crate::table::Invalid> {
                let word = |word| <Self as strum::VariantArray>::VARIANTS.get(usize::from(word)).copied();
                cells.word()?.map(|index| word(index).ok_or($crate::table::Invalid)).transpose()
            }
        }
    )*};
}
pub(crate) use words;

impl Rows {
    pub fn put_word(&mut self, word: Option<u8>) {
        if let Some(Values::Word(values)) = self.column() {
            values.push(word);
        }
    }
}

impl Cells<'_> {
    pub fn word(&mut self) -> Result<Option<u8>, Invalid> {
        match self.columns.next() {
            Some(Values::Word(values)) => values.get(self.row).copied().ok_or(Invalid),
            _ => Err(Invalid),
        }
    }
}

/// Declares a table: the field, type and name of each column, in their order. A group in `..` lists the fields of one
/// field.
macro_rules! table {
    ($row:ident in $table:literal {
        $($field:ident: $type:ty = $name:literal,)*
        $(..$group:ident: $of:ident { $($inner:ident: $inner_type:ty = $inner_name:literal,)* })?
    }) => {
        impl $crate::table::Row for $row {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [$crate::table::Column] = &[
                $($crate::table::Column::new::<$type>($name),)*
                $($($crate::table::Column::new::<$inner_type>($inner_name),)*)?
            ];

            fn put(&self, rows: &mut $crate::table::Rows) {
                $(<$type as $crate::table::Cell>::put(&self.$field, rows);)*
                $($(<$inner_type as $crate::table::Cell>::put(&self.$group.$inner, rows);)*)?
            }

            fn take(cells: &mut $crate::table::Cells<'_>) -> Option<Self> {
                Some(Self {
                    $($field: <$type as $crate::table::Cell>::take(cells)?,)*
                    $($group: $of { $($inner: <$inner_type as $crate::table::Cell>::take(cells)?,)* },)?
                })
            }
        }
    };
}
pub(crate) use table;

impl Values {
    /// A column of this type with this many empty cells.
    pub fn without_any(kind: Kind, rows: usize) -> Self {
        match kind {
            Kind::U32 => Self::U32(vec![None; rows]),
            Kind::U64 => Self::U64(vec![None; rows]),
            Kind::F32 => Self::F32(vec![None; rows]),
            Kind::Bool => Self::Bool(vec![None; rows]),
            Kind::Text => Self::Text(vec![None; rows]),
            Kind::Word(_) => Self::Word(vec![None; rows]),
        }
    }
}
