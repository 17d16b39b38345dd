//! The functions that a program calls in the place of the C library's.

mod announced;
mod heap;
mod mapping;
pub mod operators;
mod threads;

/// Defines functions of the C ABI that add where they were called from to their arguments, and go on in Rust:
/// `name(arguments) => function, register of the stack pointer, register of the base pointer`. They leave no frame.
macro_rules! called_from {
    ($($(#[$attribute:meta])* $name:ident => $function:path, $stack:literal, $base:literal;)*) => {$(
        $(#[$attribute])*
        /// # Safety
        ///
        /// As of the function of this name of the C or C++ library.
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
