//! Prints objects as rows of a Table, with the same cells as kube-apiserver.
//!
//! A [`Printer`] has the columns of a kind, and converts an object's JSON text into the cells of a row. Cells are
//! written directly as JSON, without a tree of values. Cells that depend on the time (ages) use the `now` argument.
//!
//! Invariant: no clock, no I/O, no state. The output is that of Kubernetes 1.36.

pub mod column;
pub mod custom;
pub mod duration;
pub mod jsonpath;
mod kinds;
pub mod printer;
pub mod row;
mod selector;
mod time;
mod value;

pub use column::Column;
pub use custom::{ColumnDefinition, InvalidColumn};
pub use printer::{PrintError, Printer};
pub use row::Row;
