//! The functions that a program calls instead of the C library's.

mod announced;
mod heap;
mod mapping;
pub mod operators;
mod threads;

/// Defines functions of the C ABI that append their caller's frame to their arguments and continue in Rust:
/// `name(arguments) => function, register for the stack pointer, register for the base pointer`. They create no frame.
macro_rules! called_from {
    ($($(#[$attribute:meta])* $name:ident => $function:path, $stack:literal, $base:literal;)*) => {$(
        $(#[$attribute])*
        /// # Safety
        ///
        /// As for the function of this name in the C or C++ library.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                concat!("mov ", $stack, ", rsp"),
                concat!("mov ", $base, ", rbp"),
                "jmp {function}",
                function = sym $function,
            )
        }
    )*};
}

pub(crate) use called_from;
