module github.com/warmroute/router

go 1.26
