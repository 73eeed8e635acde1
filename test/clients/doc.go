// Package clients runs agents that anyone could have written, as separate
// programs on the official SDKs, against a provider: raw, through Kern's
// gateway, and under kern exec. The programs are in python, node and go;
// tools/clients.sh installs what they stand on. Where that is missing their
// tests are skipped, by name, and counted.
//
// The tests of frameworks and of real providers run only when asked for, with make
// clients and make live.
package clients
