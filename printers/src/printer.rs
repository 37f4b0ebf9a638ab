//! The printer of any kind: built-in, default or custom.

use std::sync::Arc;

use jiff::Timestamp;
use tributary_apimachinery::GroupVersionResource;

use crate::custom::{ColumnDefinition, CustomPrinter, InvalidColumn};
use crate::kinds::{self, BuiltInPrinter};
use crate::{Column, Row};

/// Prints the objects of one kind as rows of a Table. A clone is cheap.
#[derive(Debug, Clone)]
pub struct Printer(PrinterSource);

#[derive(Debug, Clone)]
enum PrinterSource {
    BuiltIn(&'static BuiltInPrinter),
    Custom(Arc<CustomPrinter>),
}

/// The reason why an object could not be printed. The message does not contain the object's text.
#[derive(Debug, thiserror::Error)]
pub enum PrintError {
    /// The text is not an object of the printer's kind.
    #[error("the object cannot be decoded as its kind")]
    Decode(#[source] serde_json::Error),
}

impl Printer {
    /// Returns kube-apiserver's printer for a built-in resource, or `None` for other resources, which use
    /// [`Printer::default_columns`] or [`Printer::custom`].
    ///
    /// Costs a search in a table of about eighty entries, so callers should keep the result.
    pub fn for_resource(resource: &GroupVersionResource) -> Option<Self> {
        kinds::find(&resource.group, &resource.resource).map(|kind| Self(PrinterSource::BuiltIn(kind)))
    }

    /// Returns the printer of `autoscaling/v1` `Scale`, the response of `/scale` subresources.
    pub fn scale() -> Self {
        Self(PrinterSource::BuiltIn(&kinds::SCALE))
    }

    /// Returns the printer for kinds without a specific printer: `Name` and `Created At`, like kube-apiserver's default
    /// table convertor.
    pub fn default_columns() -> Self {
        Self(PrinterSource::BuiltIn(&kinds::DEFAULT))
    }

    /// Creates the printer of a custom resource. The columns are `Name`, followed by the `additionalPrinterColumns` of
    /// the resource's version, or by `Age` if the version has none.
    ///
    /// kube-apiserver accepts a definition with an invalid JSONPath, and shows only the columns before the invalid
    /// column. This printer shows the same columns, and the function also returns the first invalid column.
    pub fn custom(columns: &[ColumnDefinition]) -> (Self, Option<InvalidColumn>) {
        let (printer, invalid) = CustomPrinter::new(columns);
        (Self(PrinterSource::Custom(Arc::new(printer))), invalid)
    }

    /// Returns the columns in order. `Name` is the first for all kinds except events.
    pub fn columns(&self) -> &[Column] {
        match &self.0 {
            PrinterSource::BuiltIn(kind) => kind.columns,
            PrinterSource::Custom(custom) => custom.columns(),
        }
    }

    /// Replaces the content of `row` by the cells of an object's JSON text. `now` is the time of the response.
    ///
    /// Costs one pass over the text; 4.4 µs for a pod of 6 KB.
    ///
    /// # Errors
    /// [`PrintError::Decode`] if the text is not an object of this kind; `row` is then empty.
    pub fn print(&self, object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), PrintError> {
        row.clear();
        let printed = match &self.0 {
            PrinterSource::BuiltIn(kind) => (kind.print)(object, now, row),
            PrinterSource::Custom(custom) => custom.print(object, now, row),
        };
        printed.map_err(|error| {
            row.clear();
            PrintError::Decode(error)
        })
    }
}
