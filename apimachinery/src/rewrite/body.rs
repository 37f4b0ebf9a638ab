//! A request's body, with a YAML body converted to JSON.

use bytes::Bytes;

use super::{
    ANNOTATION_PREFIXES, BodyKind, Facts, Format, Rewritten, Translate, json_body, json_patch, may_contain, protobuf,
    yaml,
};
use crate::Status;

/// A request's body that can be read and rewritten. A YAML body has been converted to JSON, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestBody {
    format: Format,
    text: Bytes,
    /// The JSON of a YAML body; `None` for any other body.
    json: Option<Bytes>,
}

/// A YAML body that has not been converted to JSON yet. A YAML body whose text is JSON needs no conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlBody {
    format: Format,
    text: Bytes,
}

impl RequestBody {
    /// Creates a body that needs no conversion. Cost: a YAML body is parsed as JSON, because its text may be JSON.
    ///
    /// # Errors
    /// The unchanged body as a [`YamlBody`], if the body needs a conversion.
    pub fn new(format: Format, text: Bytes) -> Result<Self, YamlBody> {
        let is_yaml = matches!(format, Format::Yaml | Format::ApplyYaml);
        if is_yaml && !text.is_empty() && !yaml::is_json(&text) {
            return Err(YamlBody { format, text });
        }
        Ok(Self { format, text, json: None })
    }

    /// Returns the format of the client's body.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the bytes that the client sent.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// Returns the JSON of a YAML body; `None` for a body that needs no conversion.
    pub fn converted(&self) -> Option<&Bytes> {
        self.json.as_ref()
    }

    /// Returns the number of bytes to parse when the body is read or rewritten. For a YAML body, this is the length of
    /// its JSON.
    pub fn readable_bytes(&self) -> usize {
        self.readable().len()
    }

    /// Returns the body in a readable format: JSON, a JSON patch or protobuf.
    fn readable(&self) -> &Bytes {
        self.json.as_ref().unwrap_or(&self.text)
    }

    /// Reads the fields that identify the body's object and cluster. An empty body has no fields.
    ///
    /// # Errors
    /// 400 for a body that does not match its format, or lists more than 1,000 owners.
    pub fn facts(&self, shape: BodyKind) -> Result<Facts, Status> {
        facts(self.format, shape, self.readable())
    }

    /// Reads the string fields `names` of the object at a path. An absent field is an empty text. Returns `None` if
    /// there is no object at the path, and for protobuf.
    ///
    /// If a field or an object occurs several times, the last value is used, as in decoders that merge repeated
    /// objects.
    pub fn texts_at<const N: usize>(&self, path: &[&str], names: [&str; N]) -> Option<[String; N]> {
        let json = Some(self.readable()).filter(|_| self.format != Format::Protobuf)?;
        json_body::texts_at(json, path, names)
    }

    /// Replaces each resourceVersion in the body by the result of `version`, and removes the cluster annotation. If the
    /// annotations map has no other entry, the map is removed too.
    ///
    /// `has_annotations` is true if the member's own object has an annotations map. A JSON patch may rely on a map that
    /// exists only in the merged view. The rewritten patch then gets an operation that adds the map.
    ///
    /// # Errors
    /// 400 for a body that does not match its format, and the errors of `version`.
    pub fn rewritten(
        &self,
        shape: BodyKind,
        has_annotations: bool,
        version: Translate<'_>,
    ) -> Result<Rewritten, Status> {
        let unchanged = || Rewritten { body: self.text.clone(), content_type: None };
        if self.text.is_empty() {
            return Ok(unchanged());
        }
        let readable = self.readable();
        let rewritten = match self.format {
            Format::JsonPatch => json_patch::rewrite(shape, readable, has_annotations, version)?,
            Format::Protobuf => protobuf::rewrite(shape, readable, version)?,
            _ => json_body::rewrite(shape, readable, version)?,
        };
        let rewritten = rewritten.map(Bytes::from).or_else(|| {
            // YAML parsers may read a text differently. If any parser could find the cluster annotation in the YAML
            // text, the member receives the JSON that Tributary read.
            self.json.clone().filter(|_| may_contain(self.format, &self.text, &ANNOTATION_PREFIXES))
        });
        let is_yaml = self.format == Format::Yaml && self.json.is_some();
        let content_type = is_yaml.then_some("application/json");
        Ok(rewritten.map_or_else(unchanged, |body| Rewritten { body, content_type }))
    }
}

impl YamlBody {
    /// Returns the body's length in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Converts the body to JSON. Cost: one to two microseconds for each byte.
    ///
    /// # Errors
    /// 400 for a text that is not YAML, and for YAML whose aliases and merge keys add too much.
    pub fn convert(self) -> Result<RequestBody, Status> {
        let json = yaml::convert(&self.text)?;
        Ok(RequestBody { format: self.format, text: self.text, json: Some(json.into()) })
    }
}

/// Reads the fields of a body. `readable` is the body, converted to JSON if the body is YAML.
pub(super) fn facts(format: Format, shape: BodyKind, readable: &[u8]) -> Result<Facts, Status> {
    if readable.is_empty() {
        return Ok(Facts::default());
    }
    let facts = match format {
        Format::JsonPatch => json_patch::read(shape, readable)?,
        Format::Protobuf => protobuf::read(shape, readable)?,
        _ => json_body::read(shape, readable)?,
    };
    facts.within_bounds()
}
