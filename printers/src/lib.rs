//! Prints objects as Table rows, cell by cell like kube-apiserver.
//!
//! A [`Printer`] has the columns of a kind and turns an object's JSON text into the cells of a row. Cells are written
//! directly as JSON, without a tree of values, because a Table is only ever sent. Time-dependent cells (ages) use the
//! `now` argument.
//!
//! Invariant: no clock, no I/O, no state. The output follows Kubernetes 1.36.

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
