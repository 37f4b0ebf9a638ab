//! Prints objects as Table rows, cell by cell as kube-apiserver prints them.
//!
//! A [`Printer`] knows the columns of one kind and turns an object's JSON text into the cells of one row. Cells are
//! written as JSON at once, because a Table is only ever sent: there is no tree of values in between. Time-dependent
//! cells (ages) come from the `now` that is passed in.
//!
//! Invariant: no clock, no I/O, no state. What is printed follows Kubernetes 1.36.

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
