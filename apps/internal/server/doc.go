// Package server assembles the payments service into one running process: its
// database, the simulated processor, housekeeping and the HTTP listeners, and
// takes them apart again in the right order.
package server
