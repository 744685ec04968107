module seltzer.dev/sandbox/tools

go 1.26.0
