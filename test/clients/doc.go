// Package clients runs agents that anyone could have written, as separate
// programs on the official SDKs, against a provider: raw, through Kern's
// gateway, and under kern exec. The programs are in python, node and go;
// tools/clients.sh installs what they stand on. Where that is missing their
// tests are skipped, by name, and counted.
package clients
