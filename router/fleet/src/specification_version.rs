//! Versions of the OpenAPI specification.

/// Version of the OpenAPI specification.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpecificationVersion {
    /// Swagger 2.0.
    V2,
    /// OpenAPI 3.0.
    V3,
}
