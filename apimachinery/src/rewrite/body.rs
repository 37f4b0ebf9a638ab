//! A request's body, with the JSON of its YAML.

use bytes::Bytes;

use super::{
    ANNOTATION_PREFIX, BodyKind, Facts, Format, Rewritten, Translate, json_body, json_patch, may_hold, protobuf, yaml,
};
use crate::Status;

/// A body that can be read and rewritten. Its YAML has been converted to JSON, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestBody {
    format: Format,
    /// The body as it came.
    text: Bytes,
    /// The JSON of YAML that is not JSON.
    json: Option<Bytes>,
}

/// A body in YAML that is not JSON, before its conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlBody {
    format: Format,
    text: Bytes,
}

impl RequestBody {
    /// A body that needs no conversion. Cost: that of scanning JSON, for YAML alone.
    ///
    /// # Errors
    /// The body, where it is YAML that is not JSON.
    pub fn new(format: Format, text: Bytes) -> Result<Self, YamlBody> {
        let is_yaml = matches!(format, Format::Yaml | Format::ApplyYaml);
        if is_yaml && !text.is_empty() && !yaml::is_json(&text) {
            return Err(YamlBody { format, text });
        }
        Ok(Self { format, text, json: None })
    }

    /// The form in which it came.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The body as it came.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The JSON that its YAML was converted to.
    pub fn converted(&self) -> Option<&Bytes> {
        self.json.as_ref()
    }

    /// How many bytes are read when it is read or rewritten: those of the JSON of YAML.
    pub fn readable_bytes(&self) -> usize {
        self.readable().len()
    }

    /// The bytes that are read: JSON, a JSON patch or protobuf.
    fn readable(&self) -> &Bytes {
        self.json.as_ref().unwrap_or(&self.text)
    }

    /// What the body says. An empty body says nothing.
    ///
    /// # Errors
    /// 400 for a body that is not of its format, or lists more than 1,000 owners.
    pub fn facts(&self, shape: BodyKind) -> Result<Facts, Status> {
        facts(self.format, shape, self.readable())
    }

    /// The texts of these names in the object at a path, empty where there is none; `None` where there is no object.
    /// Names and objects that occur several times are read as decoders do that merge objects and keep the last text.
    /// Of a body in JSON or YAML; `None` for protobuf.
    pub fn texts_at<const N: usize>(&self, path: &[&str], names: [&str; N]) -> Option<[String; N]> {
        let json = Some(self.readable()).filter(|_| self.format != Format::Protobuf)?;
        json_body::texts_at(json, path, names)
    }

    /// Replaces every version by what `version` makes of it and takes the cluster annotation out (with the annotations
    /// map, where nothing else is in it).
    ///
    /// `has_annotations` tells whether the member's own object has an annotations map: a JSON patch may rely on a map
    /// that only the merged view's annotation made, and is then given an operation that adds one.
    ///
    /// # Errors
    /// 400 for a body that is not of its format, and what `version` answers.
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
            // Parsers of YAML differ. Where one may see our annotation, the member is sent what was read here.
            self.json.clone().filter(|_| may_hold(self.format, &self.text, &[ANNOTATION_PREFIX]))
        });
        let is_yaml = self.format == Format::Yaml && self.json.is_some();
        let content_type = is_yaml.then_some("application/json");
        Ok(rewritten.map_or_else(unchanged, |body| Rewritten { body, content_type }))
    }
}

impl YamlBody {
    /// The body's length in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Converts it. Cost: one to two microseconds for each byte.
    ///
    /// # Errors
    /// 400 for what is no YAML, and for YAML whose aliases and merge keys add too much.
    pub fn convert(self) -> Result<RequestBody, Status> {
        let json = yaml::convert(&self.text)?;
        Ok(RequestBody { format: self.format, text: self.text, json: Some(json.into()) })
    }
}

/// What a readable text says: JSON in place of YAML.
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
