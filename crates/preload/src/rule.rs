//! How to unwind from a function to its caller: the unwind tables' information in eight bytes.

use crate::module::Module;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindSection, UnwindTableRow, X86_64,
};

type Reader = EndianSlice<'static, LittleEndian>;

/// Room for the registers of one function: x86-64 has 17 relevant ones.
pub struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 20];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// Scratch space for evaluating the tables.
pub type Context = UnwindContext<usize, Storage>;

/// How to unwind from a function to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Rule {
    /// What the end of its frame (the caller's stack pointer) is computed from.
    pub from: From,
    /// Where it saved the base pointer, in words from the end of the frame; 0 if it did not change it.
    pub base: i16,
    /// Offset from there to the end of its frame, in bytes.
    pub offset: i32,
}

/// What the end of a frame is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum From {
    /// Unknown: there are no tables. A chain of frame pointers may continue.
    Nothing = 0,
    /// The stack pointer.
    Stack,
    /// The base pointer.
    Base,
    /// The word at an offset from the base pointer.
    WordAtBase,
    /// A signal trampoline: the kernel saved the registers on the stack.
    Signal,
    /// It has no caller.
    End,
}

/// The base pointer is saved at an unknown place.
pub const BASE_GONE: i16 = i16::MAX;

const NOTHING: Rule = Rule { from: From::Nothing, base: 0, offset: 0 };

impl Rule {
    /// The rule for a code address of a module.
    pub fn find(module: &Module, address: usize, context: &mut Context) -> Self {
        Self::in_tables(module, address, context).unwrap_or(NOTHING)
    }

    fn in_tables(module: &Module, address: usize, context: &mut Context) -> Option<Self> {
        let header = module.eh_frame_hdr;
        let bases = BaseAddresses::default().set_eh_frame_hdr(header as u64);
        let parsed = EhFrameHdr::new(module.rest(header)?, LittleEndian).parse(&bases, 8).ok()?;
        let start = parsed.eh_frame_ptr().direct().ok()? as usize;
        let (bases, frames) = (bases.set_eh_frame(start as u64), EhFrame::new(module.rest(start)?, LittleEndian));
        let address = address as u64;
        let function = parsed.table()?.fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset).ok()?;
        if function.is_signal_trampoline() {
            return Some(Self { from: From::Signal, base: 0, offset: 0 });
        }
        let row = function.unwind_info_for_address(&frames, &bases, context, address).ok()?;
        Self::of_row(row, &frames)
    }

    fn of_row(row: &UnwindTableRow<usize, Storage>, frames: &EhFrame<Reader>) -> Option<Self> {
        match row.register(X86_64::RA) {
            Some(RegisterRule::Offset(-8)) => {}
            Some(RegisterRule::Undefined) => return Some(Self { from: From::End, base: 0, offset: 0 }),
            _ => return None,
        }
        let base = match row.register(X86_64::RBP) {
            None | Some(RegisterRule::SameValue) => 0,
            Some(RegisterRule::Offset(offset)) if offset % 8 == 0 => i16::try_from(offset / 8).ok()?,
            Some(_) => BASE_GONE,
        };
        let (from, offset) = match row.cfa() {
            CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => (From::Stack, *offset),
            CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => (From::Base, *offset),
            CfaRule::RegisterAndOffset { .. } => return None,
            CfaRule::Expression(expression) => {
                (From::WordAtBase, word_at_base(expression.get(frames).ok()?.0.slice())?)
            }
        };
        Some(Self { from, base, offset: i32::try_from(offset).ok()? })
    }
}

/// `DW_OP_breg6 offset, DW_OP_deref`: used by functions that align their stack.
fn word_at_base(expression: &[u8]) -> Option<i64> {
    const DW_OP_BREG6: u8 = 0x76;
    const DW_OP_DEREF: u8 = 0x06;
    match *expression {
        [DW_OP_BREG6, offset @ ..0x80, DW_OP_DEREF] => Some(i64::from((offset << 1).cast_signed() >> 1)),
        _ => None,
    }
}
