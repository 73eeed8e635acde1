// Package config reads what people write: kern.yaml, which configures a host,
// and agent files. Every mistake is reported with its file, its line and what
// was expected.
package config
